from collections.abc import Collection, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import Scope

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# E2B's proxy removes what a client says of other proxies and says nothing of itself. Who names a sandbox by headers is
# such a proxy, and believed.
_FORWARDING = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
)
_FORWARDED_HOST = b"x-forwarded-host"

TRAFFIC_TOKEN = b"e2b-traffic-access-token"

# The server in front answers `Expect: 100-continue` itself.
_NOT_FOR_APPLICATIONS = _HOP_BY_HOP | {TRAFFIC_TOKEN, b"host", b"expect"}

_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_INTERIM = range(100, 200)
_FINAL = range(200, 600)
_BODILESS_STATUSES = frozenset({204, 304})


class UnsupportedRequest(Exception):
    """The request asks for something that cannot be passed on faithfully."""


@dataclass(frozen=True)
class Request:
    """A request as it goes to the application."""

    head: bytes
    method: str
    chunked: bool
    has_body: bool
    upgrade: bytes | None

    @classmethod
    def from_scope(
        cls,
        scope: Scope,
        *,
        port: int,
        host: str | None = None,
        secrets: Collection[bytes] = (),
        forwarded: bool = False,
    ) -> "Request":
        """Read a request from its ASGI scope; `host` stands in for the one the client sent, or a proxy was sent."""
        headers: Headers = scope["headers"]
        coding = find_header(headers, b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise UnsupportedRequest("The only transfer encoding supported is chunked")
        upgrade = _wanted_upgrade(headers)
        lines = [_request_line(scope), *_host_lines(headers, port, host, forwarded=forwarded)]
        passed = _passed_on(headers, secrets, forwarded=forwarded)
        lines += [b"%s: %s" % (name.title(), value) for name, value in passed]
        if coding is not None:
            lines.append(b"Transfer-Encoding: chunked")
        if upgrade is not None:
            lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
        return cls(
            head=_as_head(lines),
            method=scope["method"],
            chunked=coding is not None,
            has_body=coding is not None or find_header(headers, b"content-length") is not None,
            upgrade=upgrade,
        )

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice does no harm."""
        return not self.has_body and not self.upgrade and self.method in _REPEATABLE_METHODS


@dataclass(frozen=True)
class Response:
    """The head of an application's answer."""

    status: int
    headers: Headers

    @property
    def is_switch(self) -> bool:
        """Whether the connection speaks another protocol from here on."""
        return self.status == HTTPStatus.SWITCHING_PROTOCOLS

    @property
    def is_interim(self) -> bool:
        """Whether another answer to the same request follows."""
        return self.status in _INTERIM and not self.is_switch

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL

    @property
    def coding(self) -> bytes | None:
        """The transfer encoding, in lower case."""
        value = find_header(self.headers, b"transfer-encoding")
        return value.lower() if value is not None else None

    @property
    def ends_with_connection(self) -> bool:
        """Whether nothing but the end of the connection tells where the body ends."""
        return (
            self.status not in _BODILESS_STATUSES
            and find_header(self.headers, b"content-length") is None
            and self.coding is None
        )

    def for_client(self) -> Headers:
        """Return the headers that may go on to the client."""
        dropped = _HOP_BY_HOP | _named_by_connection(self.headers)
        if self.status in _BODILESS_STATUSES:
            dropped |= {b"content-length"}
        return [header for header in self.headers if header[0].lower() not in dropped]

    def as_switch(self) -> bytes:
        """Return the head that tells the client that the protocol changes here."""
        upgrade = find_header(self.headers, b"upgrade") or b""
        lines = [b"HTTP/1.1 101 Switching Protocols"]
        lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
        lines += [b"%s: %s" % header for header in self.for_client()]
        return _as_head(lines)


def find_header(headers: Headers, name: bytes) -> bytes | None:
    """Return the first value of a header, or None; `name` is in lower case."""
    return next((value for key, value in headers if key.lower() == name), None)


def _as_head(lines: list[bytes]) -> bytes:
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _request_line(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
    return b"%s %s HTTP/1.1" % (scope["method"].encode(), target)


def _host_lines(headers: Headers, port: int, host: str | None, *, forwarded: bool) -> list[bytes]:
    told = find_header(headers, _FORWARDED_HOST) if forwarded else None
    sent = find_header(headers, b"host") if told is None else told
    if host is not None:
        lines = [b"Host: " + host.encode()]
        return lines if sent is None or told is not None else [*lines, b"X-Forwarded-Host: " + sent]
    return [b"Host: " + (b"localhost:%d" % port if sent is None else sent)]


def _passed_on(
    headers: Headers, secrets: Collection[bytes], *, forwarded: bool
) -> Iterator[tuple[bytes, bytes]]:
    # What frames the message is not the client's to hide behind `Connection: content-length`.
    dropped = _NOT_FOR_APPLICATIONS | (_named_by_connection(headers) - {b"content-length"})
    if not forwarded:
        dropped |= _FORWARDING
    return (
        (name, value) for name, value in headers if name not in dropped and value not in secrets
    )


def _wanted_upgrade(headers: Headers) -> bytes | None:
    """Return the protocol asked for; an offer of HTTP/2 is declined, as a server may."""
    upgrade = find_header(headers, b"upgrade")
    if upgrade is None or b"upgrade" not in _named_by_connection(headers):
        return None
    return None if upgrade.lower() == b"h2c" else upgrade


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    )
