import asyncio
import re
from collections.abc import Awaitable, Collection, Mapping
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import httpx
from e2b.api.client.client import AuthenticatedClient
from e2b.api.client.errors import UnexpectedStatus
from e2b.api.metadata import default_headers
from pyqwest.httpx import AsyncPyqwestTransport

from sandbox_server.domain.errors import BackendError
from sandbox_server.metrics.instruments import ProviderCall
from sandbox_server.providers.e2b.failures import Asking, ErrorAnswer, read_error
from sandbox_server.providers.e2b.pools import control_pool
from sandbox_server.providers.protocol.provider import Endpoint

T = TypeVar("T")

_UPLOAD_LIMIT = timedelta(minutes=5)
_WHERE = re.compile(r"error sending request(?: for url \([^)]*\))?: ")
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, UnexpectedStatus)


class Connection:
    """One provider's control plane, over connections of its own.

    The SDK shares its connections among all providers and running commands, up to 200 per
    address, so that a request could wait for the end of a command.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._name = endpoint.name
        self._secret = endpoint.api_key
        self._pool = control_pool(ca_cert=endpoint.ca_cert)
        client = partial(
            httpx.AsyncClient,
            transport=AsyncPyqwestTransport(self._pool),
            timeout=httpx.Timeout(None),  # `ask` limits every call as a whole
        )
        self._sandboxes = client(event_hooks={"response": [self._refuse]})
        self._http = client(
            base_url=endpoint.api_url,
            headers={**default_headers, "X-API-Key": endpoint.api_key},
            event_hooks={"response": [partial(self._refuse, of_api=True)]},
        )
        self.api = AuthenticatedClient(
            base_url=endpoint.api_url, token="", raise_on_unexpected_status=True
        ).set_async_httpx_client(self._http)

    async def _refuse(self, response: httpx.Response, *, of_api: bool = False) -> None:
        # Before the SDK parses the answer: it expects its own JSON even in a gateway's error.
        if not response.is_success:
            await response.aread()
            raise read_error(response, secret=self._secret, of_api=of_api)

    async def ask(
        self,
        call: str,
        request: Awaitable[T],
        *,
        limit: timedelta,
        changes: bool,
        accepted: Collection[int] = (),
    ) -> T:
        """Send one request, once; `changes`: it may have an effect even if its answer is lost.

        `call` is its name in the metrics. An error with a status in `accepted` is raised as `ErrorAnswer`, for the caller to handle.
        """
        with ProviderCall(self._name, call):
            return await self._ask(request, limit=limit, changes=changes, accepted=accepted)

    async def _ask(
        self, request: Awaitable[T], *, limit: timedelta, changes: bool, accepted: Collection[int]
    ) -> T:
        asking = Asking(backend=self._name, changes=changes)
        failure: BackendError
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await request
        except ErrorAnswer as answer:
            if answer.status in accepted:
                raise
            failure = asking.refused(answer)
        except TimeoutError:
            failure = asking.lost(f"did not answer within {limit.total_seconds():g} s")
        except _NEVER_SENT as error:
            failure = asking.unsent(f"cannot be reached: {_plain(error)}")
        except httpx.HTTPError as error:
            failure = asking.lost(f"the connection broke: {_plain(error)}")
        except _UNREADABLE:
            failure = asking.lost("gave an answer that its API does not have")
        # Raised outside of the handler, without context: httpx's errors hold the request with the API key.
        raise failure

    async def is_answering(self, url: str, *, headers: Mapping[str, str], limit: timedelta) -> bool:
        """Send a request to a sandbox itself; a timeout is an answer, a failed connection is not."""
        request = self._sandboxes.get(url, headers=headers)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self.ask(
                    "health",
                    request,
                    limit=2 * limit,
                    changes=False,
                    accepted={HTTPStatus.BAD_GATEWAY},
                )
        except (TimeoutError, ErrorAnswer):
            return False
        return True

    async def put(self, url: str, content: bytes, headers: Mapping[str, str]) -> None:
        """Upload a file to a URL from the provider, without the API key: it may be at another host."""
        sized = {name: value for name, value in headers.items() if name.lower() != "content-length"}
        request = self._sandboxes.put(url, content=content, headers=sized)
        await self.ask("upload", request, limit=_UPLOAD_LIMIT, changes=False)

    async def close(self) -> None:
        await self._http.aclose()
        await self._sandboxes.aclose()
        await self._pool.aclose()


def _plain(error: httpx.HTTPError) -> str:
    """Describe an error without addresses, which would reveal the server's infrastructure to callers."""
    return _WHERE.sub("", str(error)).removeprefix("Request failed: ")
