"""Describes requests before they are sent, and parses responses."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from sandbox_client.errors.parsing import unexpected

Model = TypeVar("Model", bound=BaseModel)

Query = Mapping[str, str | float | Sequence[str] | None]
"""Parameters by name; None values are omitted."""

EVENT_STREAM = "text/event-stream"
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request; it is repeated only if that is safe."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    may_repeat: bool
    wait: float | None = None
    """How long the server may wait before it answers; None: its default."""
    read_timeout: float | None = None
    """Maximum time without data; None: the client's `timeout`."""

    expected: int | None = None
    """An error status that is not raised."""

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        return replace(self, headers={**self.headers, **headers})

    def with_query(self, **query: str | float | bool) -> Self:
        return replace(self, query=(*self.query, *_plain(query)))

    def with_body(self, body: bytes) -> Self:
        return replace(self, body=body)

    def expecting(self, status: int) -> Self:
        return replace(self, expected=status)

    def once(self) -> Self:
        """Repeat it only if it was certainly not carried out."""
        return replace(self, may_repeat=False)

    def waiting(self, seconds: float) -> Self:
        """Let the server wait for the result before it answers."""
        query = tuple(each for each in self.query if each[0] != "wait")
        return replace(self, query=(*query, ("wait", f"{seconds:g}")), wait=seconds)

    def with_read_timeout(self, seconds: float) -> Self:
        """Set the maximum time without data."""
        return replace(self, read_timeout=seconds)

    def streamed(self) -> Self:
        """Request server-sent events."""
        return self.with_headers({"Accept": EVENT_STREAM})


def call(
    method: str,
    path: str,
    body: BaseModel | None = None,
    *,
    query: Query | None = None,
    headers: Mapping[str, str] | None = None,
    may_repeat: bool | None = None,
    wait: float | None = None,
) -> Call:
    """Describe a request; a POST is repeated only with `may_repeat`."""
    headers = dict(headers or {})
    content = None
    if body is not None:
        content = body.model_dump_json(exclude_unset=True, by_alias=True).encode()
        headers["Content-Type"] = "application/json"
    described = Call(
        method=method,
        path=path,
        query=_plain(query or {}),
        headers=headers,
        body=content,
        may_repeat=method in _REPEATABLE if may_repeat is None else may_repeat,
    )
    return described if wait is None else described.waiting(wait)


def create(
    path: str, body: BaseModel, *, wait: float | None = None, query: Query | None = None
) -> Call:
    """Describe a POST with an idempotency key, so that repeating it is safe."""
    key = {"Idempotency-Key": secrets.token_urlsafe(24)}
    return call("POST", path, body, headers=key, may_repeat=True, wait=wait, query=query)


def request_body(model: type[Model], fields: Mapping[str, Any]) -> Model:
    """Build a request body; None values are omitted."""
    return model(**{name: value for name, value in fields.items() if value is not None})


def segment(text: str) -> str:
    """Percent-encode one path segment."""
    return quote(text, safe="")


def read_as(kind: type[Model], content: bytes, *, status: int) -> Model:
    """Parse a response; an invalid one is not from a sandbox server."""
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        raise unexpected(status, content) from None


def _plain(query: Query) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, text) for name, value in query.items() if value is not None for text in _texts(value)
    )


def _texts(value: str | float | Sequence[str]) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float):
        return [json.dumps(value)]
    return value
