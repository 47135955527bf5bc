from collections.abc import Iterator
from dataclasses import dataclass

from starlette.types import Scope

from sandbox_server.backends.provider import PortAddress
from sandbox_server.domain.errors import NotPassedOn
from sandbox_server.passing.credentials import query_without_credentials, without_credentials
from sandbox_server.passing.headers import (
    HOP_BY_HOP,
    Header,
    Headers,
    find_header,
    named_by_connection,
    plain_name,
)
from sandbox_server.passing.outside import Outside

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})

# Only we say these: who asks from where, and for which sandbox.
_OURS_TO_SAY = frozenset(
    {
        b"e2b-sandbox-id",
        b"e2b-sandbox-port",
        b"e2b-traffic-access-token",
        b"expect",  # answered by our own HTTP server
        b"forwarded",
        b"host",
        b"x-real-ip",
    }
)
_FORWARDED = b"x-forwarded-"


@dataclass(frozen=True)
class PassedRequest:
    """A request as it goes to the server in a sandbox."""

    head: bytes
    method: str
    is_chunked: bool
    has_body: bool
    upgrade: bytes | None

    is_repeatable: bool
    """Whether to send it twice does no harm."""


def read_request(
    scope: Scope, address: PortAddress, outside: Outside, *, path: bytes, added: Headers = ()
) -> PassedRequest:
    """Make what goes on to a sandbox: `path` in place of what was asked, and `added` in place of the like."""
    headers: Headers = scope["headers"]
    coding = find_header(headers, b"transfer-encoding")
    upgrade = _wanted_upgrade(headers)
    has_body = _has_body(headers)
    _require_faithful(scope, coding, has_body=has_body, upgrade=upgrade)
    lines = [_request_line(scope, path)]
    passed = _replaced(_passed(headers, outside, address), added)
    lines += [b"%s: %s" % header for header in outside.told(address)]
    lines += [b"%s: %s" % (name.title(), value) for name, value in passed]
    lines += [b"%s: %s" % (name.title(), value) for name, value in (*address.headers, *added)]
    if coding is not None:
        lines.append(b"Transfer-Encoding: chunked")
    if upgrade is not None:
        lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
    return PassedRequest(
        head=b"\r\n".join([*lines, b"", b""]),
        method=scope["method"],
        is_chunked=coding is not None,
        has_body=has_body,
        upgrade=upgrade,
        is_repeatable=is_repeatable(scope),
    )


def is_repeatable(scope: Scope) -> bool:
    """Tell whether to send a request twice does no harm."""
    headers: Headers = scope["headers"]
    return (
        scope["method"] in _REPEATABLE and not _has_body(headers) and not _wanted_upgrade(headers)
    )


def _has_body(headers: Headers) -> bool:
    has_coding = find_header(headers, b"transfer-encoding") is not None
    return has_coding or find_header(headers, b"content-length") not in {None, b"0"}


def _require_faithful(
    scope: Scope, coding: bytes | None, *, has_body: bool, upgrade: bytes | None
) -> None:
    if scope["method"] == "CONNECT":
        raise NotPassedOn("This is no proxy for other hosts.")
    if coding is not None and coding.lower() != b"chunked":
        raise NotPassedOn("The only transfer coding that is passed on is chunked.")
    if upgrade is not None and has_body:
        raise NotPassedOn("A request that upgrades its connection cannot have a body.")


def _request_line(scope: Scope, path: bytes) -> bytes:
    query = query_without_credentials(scope["query_string"])
    target = path + b"?" + query if query else path
    return b"%s %s HTTP/1.1" % (scope["method"].encode(), target)


def _passed(headers: Headers, outside: Outside, address: PortAddress) -> Iterator[Header]:
    # What frames the message is not the client's to hide behind `Connection: content-length`.
    dropped = HOP_BY_HOP | (named_by_connection(headers) - {b"content-length"})
    for name, value in without_credentials(headers):
        plain = plain_name(name)
        if name in dropped or plain in _OURS_TO_SAY or plain.startswith(_FORWARDED):
            continue
        if name == b"cookie" and not outside.has_own_host:
            continue
        yield name, outside.as_asked_inside(name, value, address)


def _replaced(headers: Iterator[Header], added: Headers) -> Iterator[Header]:
    names = {plain_name(name) for name, _ in added}
    return (header for header in headers if plain_name(header[0]) not in names)


def _wanted_upgrade(headers: Headers) -> bytes | None:
    """Find the protocol asked for; an offer of HTTP/2 is declined, as a server may."""
    upgrade = find_header(headers, b"upgrade")
    if upgrade is None or b"upgrade" not in named_by_connection(headers):
        return None
    return None if upgrade.lower() == b"h2c" else upgrade
