import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import Scope

from sandbox_http.headers import (
    HOP_BY_HOP,
    Header,
    Headers,
    find_header,
    has_body,
    named_by_connection,
    wanted_upgrade,
)

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
_INTERIM = range(100, 200)
_FINAL = range(200, 600)
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_BAD_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\"/\[\]?={}]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class UnsupportedRequest(Exception):
    """The request cannot be forwarded faithfully; the message says why."""


@dataclass(frozen=True, kw_only=True)
class RequestHead:
    """A request as it goes upstream, without its body."""

    data: bytes
    method: str
    is_chunked: bool
    has_body: bool
    upgrade: bytes | None

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be repeated safely."""
        return self.method in _REPEATABLE and not self.has_body and self.upgrade is None


@dataclass(frozen=True)
class ResponseHead:
    """The head of an upstream's response."""

    status: int
    headers: Headers

    @property
    def is_switch(self) -> bool:
        """Whether the connection switches protocols."""
        return self.status == HTTPStatus.SWITCHING_PROTOCOLS

    @property
    def is_interim(self) -> bool:
        """Whether a final response follows."""
        return self.status in _INTERIM and not self.is_switch

    @property
    def has_no_end(self) -> bool:
        """Whether the response has no end of its own, as event streams."""
        kind = find_header(self.headers, b"content-type") or b""
        return self.is_switch or kind.lower().startswith(b"text/event-stream")

    @property
    def is_sound(self) -> bool:
        """Whether status and headers are valid and can be forwarded unchanged."""
        return (self.is_switch or self.status in _FINAL) and not any(
            _BAD_NAME.search(name) or _BAD_VALUE.search(value) for name, value in self.headers
        )

    @property
    def coding(self) -> bytes | None:
        """The transfer coding, in lower case."""
        value = find_header(self.headers, b"transfer-encoding")
        return None if value is None else value.lower()

    @property
    def ends_with_connection(self) -> bool:
        """Whether the body ends with the connection."""
        return (
            self.status not in _BODILESS
            and self.coding is None
            and find_header(self.headers, b"content-length") is None
        )

    @property
    def forwarded_headers(self) -> list[Header]:
        """The end-to-end headers."""
        dropped = HOP_BY_HOP | named_by_connection(self.headers)
        if self.status in _BODILESS:
            dropped |= {b"content-length"}
        return [header for header in self.headers if header[0].lower() not in dropped]

    def switch(self, headers: Iterable[Header]) -> bytes:
        """Build the head of the 101 response."""
        upgrade = find_header(self.headers, b"upgrade") or b""
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            b"Connection: Upgrade",
            b"Upgrade: " + upgrade,
        ]
        return _joined([*lines, *(b"%s: %s" % header for header in headers)])


def make_request(scope: Scope, *, target: bytes, headers: Iterable[Header]) -> RequestHead:
    """Write a client's request anew for an upstream, with the headers that it is to see.

    Framing and the upgrade come from the client's request; `headers` holds none of them.
    """
    sent: Headers = scope["headers"]
    coding, upgrade = find_header(sent, b"transfer-encoding"), wanted_upgrade(sent)
    _require_forwardable(scope["method"], coding, upgrade, has_body=has_body(sent))
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%s: %s" % (name.title(), value) for name, value in headers]
    if coding is not None:
        lines.append(b"Transfer-Encoding: chunked")
    if upgrade is not None:
        lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
    return RequestHead(
        data=_joined(lines),
        method=scope["method"],
        is_chunked=coding is not None,
        has_body=has_body(sent),
        upgrade=upgrade,
    )


def is_repeatable(scope: Scope) -> bool:
    """Tell whether sending a request twice does no harm."""
    headers: Headers = scope["headers"]
    return scope["method"] in _REPEATABLE and not has_body(headers) and not wanted_upgrade(headers)


def _require_forwardable(
    method: str, coding: bytes | None, upgrade: bytes | None, *, has_body: bool
) -> None:
    if method == "CONNECT":
        raise UnsupportedRequest("CONNECT is not supported: this is no proxy to other hosts.")
    if coding is not None and coding.lower() != b"chunked":
        raise UnsupportedRequest("The only supported transfer coding is chunked.")
    if upgrade is not None and has_body:
        raise UnsupportedRequest("A request that upgrades its connection cannot have a body.")


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"\r\n".join([*lines, b"", b""])
