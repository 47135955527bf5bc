"""A provider's refusals, and the ways to lose it, as the server's own errors."""

import json
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import httpx

from sandbox_server.backends.errors import AnswerLost
from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
)

_LONGEST_TEXT = 500
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
# What E2B answers to a create whose key belongs to one that is not settled.
_UNSETTLED = {"idempotency_in_progress", "idempotency_outcome_unknown"}
# Errors of the provider's own by their status, which no repetition changes.
_FINAL = {"sandbox_create_refused", "not_implemented"}


@dataclass(eq=False)
class ErrorAnswer(Exception):
    """An answer that is no success."""

    status: int
    message: str
    error_code: str | None
    retry_after: timedelta | None


def read_error(response: httpx.Response, *, secret: str) -> ErrorAnswer:
    """Read what an error's answer says, whether it is of the protocol or of a gateway on the way."""
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    said = body if isinstance(body, dict) else {}
    text = str(said.get("message") or response.text or response.reason_phrase)
    return ErrorAnswer(
        status=response.status_code,
        message=text.replace(secret, "…")[:_LONGEST_TEXT],
        error_code=said.get("error_code"),
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> timedelta | None:
    return timedelta(seconds=int(text)) if text and text.isascii() and text.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Whom something was asked of, and whether it changes something there."""

    backend: str
    changes: bool

    def refused(self, answer: ErrorAnswer) -> BackendError:
        """Say what an error's answer means."""
        text = f"answered {answer.status}: {answer.message}"
        if answer.error_code in _UNSETTLED:
            return AnswerLost(self.backend, text)
        if answer.error_code in _FINAL:
            return BackendRefused(self.backend, text)
        if answer.status in _BUSY:
            return BackendBusy(self.backend, text, retry_after=answer.retry_after)
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return BackendRefused(self.backend, text)
        return self.lost(text)

    def lost(self, text: str) -> BackendUnavailable:
        """Say that there was no answer, which leaves a change in doubt."""
        return (AnswerLost if self.changes else BackendUnavailable)(self.backend, text)

    def unsent(self, text: str) -> BackendUnavailable:
        return BackendUnavailable(self.backend, text)
