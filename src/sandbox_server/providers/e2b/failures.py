"""Errors of a provider, and of connections to it, as the server's own errors."""

import json
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import httpx

from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
)
from sandbox_server.providers.protocol.errors import AnswerLost, CallNotSupported

_LONGEST_TEXT = 500
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
# E2B's answer to a create whose idempotency key belongs to an unfinished one.
_UNSETTLED = {"idempotency_in_progress", "idempotency_outcome_unknown"}
# Server errors that a retry does not change.
_FINAL = {"sandbox_create_refused", "not_implemented"}
_NO_SUCH_METHOD = {HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
# E2B's JSON for an unknown route.
_NO_SUCH_ROUTE = "no matching operation was found"


@dataclass(eq=False)
class ErrorAnswer(Exception):
    """An answer with an error status."""

    request: str
    """Method and path."""
    status: int
    message: str
    error_code: str | None
    retry_after: timedelta | None
    is_missing_route: bool
    """Whether the provider's API lacks the call, rather than the subject of the call."""

    def names(self, thing: str) -> bool:
        """Whether the text names what is missing, beyond repeating the path."""
        return thing in self.message.replace(f"/{thing}", "")

    def lacks_call(self, backend: str) -> CallNotSupported:
        return CallNotSupported(backend, self.request, f"answered {self.status}: {self.message}")


def read_error(response: httpx.Response, *, secret: str, of_api: bool) -> ErrorAnswer:
    """Parse an error response, from the provider's API or from a gateway in front of it.

    `of_api`: whether the request went to a route of the API, not to an upload URL.
    """
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    document = body if isinstance(body, dict) else {}
    text = str(document.get("message") or response.text or response.reason_phrase)
    return ErrorAnswer(
        request=f"{response.request.method} {response.request.url.path}",
        status=response.status_code,
        message=text.strip().replace(secret, "…")[:_LONGEST_TEXT],
        error_code=document.get("error_code"),
        retry_after=_seconds(response.headers.get("Retry-After")),
        is_missing_route=of_api
        and _is_missing_route(response.status_code, document.get("message")),
    )


def _is_missing_route(status: int, message: object) -> bool:
    if status in _NO_SUCH_METHOD:
        return True
    in_protocol = isinstance(message, str) and _NO_SUCH_ROUTE not in message
    return status == HTTPStatus.NOT_FOUND and not in_protocol


def _seconds(text: str | None) -> timedelta | None:
    return timedelta(seconds=int(text)) if text and text.isascii() and text.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The provider of a request, and whether the request has an effect."""

    backend: str
    changes: bool

    def refused(self, answer: ErrorAnswer) -> BackendError:
        """Map an error answer to an error."""
        text = f"answered {answer.status}: {answer.message}"
        if answer.error_code in _UNSETTLED:
            return AnswerLost(self.backend, text)
        if answer.error_code in _FINAL:
            return BackendRefused(self.backend, text)
        if answer.is_missing_route:
            return answer.lacks_call(self.backend)
        if answer.status in _BUSY:
            return BackendBusy(self.backend, text, retry_after=answer.retry_after)
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return BackendRefused(self.backend, text)
        return self.lost(text)

    def lost(self, text: str) -> BackendUnavailable:
        """Map a missing answer to an error; the effect of the request is unknown."""
        return (AnswerLost if self.changes else BackendUnavailable)(self.backend, text)

    def unsent(self, text: str) -> BackendUnavailable:
        return BackendUnavailable(self.backend, text)
