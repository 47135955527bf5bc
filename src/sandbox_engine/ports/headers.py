from collections.abc import Collection, Iterator

from starlette.types import Scope

from sandbox_http.headers import Header, Headers, find_header, hop_by_hop_of_request
from sandbox_http.messages import RequestHead, make_request

# E2B's proxy removes forwarding headers of clients and adds none. A client that names the sandbox
# by headers is a proxy; its forwarding headers are trusted.
_FORWARDING = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
)
_FORWARDED_HOST = b"x-forwarded-host"

TRAFFIC_TOKEN = b"e2b-traffic-access-token"

# Asks to keep a tunnel open while the sandbox is paused: its messages wait, and whoever sends one resumes the sandbox.
KEEP_OPEN = b"x-keep-while-paused"

# The engine's HTTP server answers `Expect: 100-continue` itself.
_NOT_FOR_APPLICATIONS = frozenset({TRAFFIC_TOKEN, KEEP_OPEN, b"host", b"expect"})


def read_request(
    scope: Scope,
    *,
    port: int,
    host: str | None = None,
    secrets: Collection[bytes] = (),
    forwarded: bool = False,
) -> RequestHead:
    """Build a request head from an ASGI scope; `host` overrides the Host header."""
    headers: Headers = scope["headers"]
    query: bytes = scope["query_string"]
    target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
    passed = _passed_on(headers, secrets, forwarded=forwarded)
    hosts = _hosts(headers, port, host, forwarded=forwarded)
    return make_request(scope, target=target, headers=[*hosts, *passed])


def _hosts(headers: Headers, port: int, host: str | None, *, forwarded: bool) -> list[Header]:
    original = find_header(headers, _FORWARDED_HOST) if forwarded else None
    sent = find_header(headers, b"host") if original is None else original
    if host is not None:
        lines = [(b"host", host.encode())]
        return lines if sent is None or original is not None else [*lines, (_FORWARDED_HOST, sent)]
    return [(b"host", b"localhost:%d" % port if sent is None else sent)]


def _passed_on(
    headers: Headers, secrets: Collection[bytes], *, forwarded: bool
) -> Iterator[Header]:
    dropped = hop_by_hop_of_request(headers) | _NOT_FOR_APPLICATIONS
    if not forwarded:
        dropped |= _FORWARDING
    return (
        (name, value) for name, value in headers if name not in dropped and value not in secrets
    )
