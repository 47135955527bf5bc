import re
from dataclasses import dataclass
from http import HTTPStatus

from sandbox_server.backends.provider import PortAddress
from sandbox_server.passing.headers import (
    HOP_BY_HOP,
    Header,
    Headers,
    find_header,
    named_by_connection,
)
from sandbox_server.passing.outside import Outside
from sandbox_server.passing.set_cookie import narrowed

_INTERIM = range(100, 200)
_FINAL = range(200, 600)
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})

# What is said to a proxy in front of us, or about all of a host, is not an application's to say.
_TO_PROXIES = frozenset(
    {
        b"alt-svc",
        b"date",  # our own HTTP server says it
        b"x-accel-charset",
        b"x-accel-expires",
        b"x-accel-limit-rate",
        b"x-accel-redirect",
        b"x-lighttpd-send-file",
        b"x-sendfile",
    }
)
_ABOUT_ALL_OF_A_HOST = frozenset(
    {
        b"clear-site-data",
        b"nel",
        b"public-key-pins",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"set-cookie",
        b"strict-transport-security",
    }
)
_SANDBOXED: Header = (b"content-security-policy", b"sandbox")
_BAD_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\"/\[\]?={}]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True)
class PassedAnswer:
    """The head of what the server in a sandbox answers."""

    status: int
    headers: Headers

    @property
    def is_switch(self) -> bool:
        """Tell whether the connection speaks another protocol from here on."""
        return self.status == HTTPStatus.SWITCHING_PROTOCOLS

    @property
    def has_no_end(self) -> bool:
        """Tell whether it may go on for as long as both sides like."""
        kind = find_header(self.headers, b"content-type") or b""
        return self.is_switch or kind.lower().startswith(b"text/event-stream")

    @property
    def is_interim(self) -> bool:
        """Tell whether another answer to the same request follows."""
        return self.status in _INTERIM and not self.is_switch

    @property
    def is_sound(self) -> bool:
        """Tell whether it can be passed on as it is."""
        return (self.is_switch or self.status in _FINAL) and not any(
            _BAD_NAME.search(name) or _BAD_VALUE.search(value) for name, value in self.headers
        )

    @property
    def coding(self) -> bytes | None:
        value = find_header(self.headers, b"transfer-encoding")
        return None if value is None else value.lower()

    @property
    def ends_with_connection(self) -> bool:
        """Tell whether nothing but the end of the connection says where the body ends."""
        return (
            self.status not in _BODILESS
            and self.coding is None
            and find_header(self.headers, b"content-length") is None
        )

    def headers_for(self, outside: Outside, address: PortAddress) -> list[Header]:
        """List what of it goes on to the client."""
        dropped = HOP_BY_HOP | _TO_PROXIES | named_by_connection(self.headers)
        if self.status in _BODILESS:
            dropped |= {b"content-length"}
        if not outside.has_own_host:
            dropped |= _ABOUT_ALL_OF_A_HOST
        passed = [
            (name, narrowed(value) if name == b"set-cookie" else value)
            for name, value in ((name.lower(), value) for name, value in self.headers)
            if name not in dropped
        ]
        translated = [
            (name, outside.as_seen_outside(name, value, address)) for name, value in passed
        ]
        return translated if outside.has_own_host else [*translated, _SANDBOXED]

    def switch_for(self, outside: Outside, address: PortAddress) -> bytes:
        """Write the head that tells the client of the other protocol."""
        upgrade = find_header(self.headers, b"upgrade") or b""
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            b"Connection: Upgrade",
            b"Upgrade: " + upgrade,
        ]
        lines += [b"%s: %s" % header for header in self.headers_for(outside, address)]
        return b"\r\n".join([*lines, b"", b""])
