import asyncio
import ssl
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import httpx

from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
)
from sandbox_server.metrics.instruments import ProviderCall
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.protocol.provider import Endpoint

_LONGEST_TEXT = 500
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)


class NoSuchThing(Exception):
    """The provider, or a gateway in front of it, answered 404."""

    def __init__(self, request: str, text: str) -> None:
        super().__init__(text)
        self.request = request
        self.text = text


class Connection:
    """Requests to one account at Browserbase."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._name = endpoint.name
        self._secret = endpoint.api_key
        self.tls = ssl.create_default_context()
        if endpoint.ca_cert is not None:
            self.tls.load_verify_locations(cadata=endpoint.ca_cert.decode())
        self._http = httpx.AsyncClient(
            base_url=endpoint.api_url,
            headers={"X-BB-API-Key": endpoint.api_key},
            timeout=httpx.Timeout(None),  # `ask` limits every call as a whole
            verify=self.tls,
        )

    async def ask(
        self,
        call: str,
        method: str,
        path: str,
        *,
        limit: timedelta,
        changes: bool = False,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request, once; `changes`: it may have an effect even if its answer is lost."""
        with ProviderCall(self._name, call):
            lost = AnswerLost if changes else BackendUnavailable
            failure: BackendError
            try:
                async with asyncio.timeout(limit.total_seconds()):
                    answer = await self._http.request(method, path, params=params, json=body)
            except TimeoutError:
                failure = lost(self._name, f"did not answer within {limit.total_seconds():g} s")
            except _NEVER_SENT:
                failure = BackendUnavailable(self._name, "cannot be reached")
            except httpx.HTTPError:
                failure = lost(self._name, "the connection broke")
            else:
                return self._read(answer, lost=lost, request=f"{method} {path}")
            # Raised outside of the handler, without context: httpx's errors hold the request with the API key.
            raise failure

    def _read(self, answer: httpx.Response, *, lost: type[BackendUnavailable], request: str) -> Any:
        if answer.is_success:
            try:
                return answer.json()
            except ValueError:
                failure = lost(self._name, "gave an answer that its API does not have")
            raise failure
        text = f"answered {answer.status_code}: {self._message(answer)}"
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise NoSuchThing(request, text)
        if answer.status_code in _BUSY:
            raise BackendBusy(self._name, text, retry_after=_retry_after(answer))
        if answer.is_client_error:
            raise BackendRefused(self._name, text)
        raise lost(self._name, text)

    def _message(self, answer: httpx.Response) -> str:
        try:
            document = answer.json()
        except ValueError:
            document = None
        told = document.get("message") if isinstance(document, dict) else None
        text = str(told or answer.text or answer.reason_phrase)
        return text.strip().replace(self._secret, "…")[:_LONGEST_TEXT]

    async def close(self) -> None:
        await self._http.aclose()


def _retry_after(answer: httpx.Response) -> timedelta | None:
    text = answer.headers.get("Retry-After", "")
    return timedelta(seconds=int(text)) if text.isascii() and text.isdecimal() else None
