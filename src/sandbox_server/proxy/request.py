from collections.abc import Iterator

from starlette.types import Scope

from sandbox_http.headers import Header, Headers, hop_by_hop_of_request, plain_name
from sandbox_http.messages import RequestHead, UnsupportedRequest, make_request
from sandbox_server.domain.errors import NotPassedOn
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.credentials import query_without_credentials, without_credentials
from sandbox_server.proxy.public_origin import PublicOrigin

# Set by this server only: client address, host and sandbox.
_RESERVED = frozenset(
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


def read_request(
    scope: Scope,
    address: PortAddress,
    origin: PublicOrigin,
    *,
    path: bytes,
    extra_headers: Headers = (),
) -> RequestHead:
    """Build the request for the server in the sandbox, with `path` as its target."""
    query = query_without_credentials(scope["query_string"])
    passed = _without(_forwardable(scope["headers"], origin, address), extra_headers)
    headers = [*origin.forwarded_headers(address), *passed, *address.headers, *extra_headers]
    target = address.target or (path + b"?" + query if query else path)
    try:
        return make_request(scope, target=target, headers=headers)
    except UnsupportedRequest as error:
        raise NotPassedOn(str(error)) from None


def _forwardable(headers: Headers, origin: PublicOrigin, address: PortAddress) -> Iterator[Header]:
    dropped = hop_by_hop_of_request(headers)
    for name, value in without_credentials(headers):
        plain = plain_name(name)
        if name in dropped or plain in _RESERVED or plain.startswith(_FORWARDED):
            continue
        if name == b"cookie" and not origin.has_own_host:
            continue
        yield name, origin.rewrite_request_header(name, value, address)


def _without(headers: Iterator[Header], extra_headers: Headers) -> Iterator[Header]:
    names = {plain_name(name) for name, _ in extra_headers}
    return (header for header in headers if plain_name(header[0]) not in names)
