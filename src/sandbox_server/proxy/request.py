from collections.abc import Iterator

from starlette.types import Scope

from sandbox_http.headers import Header, Headers, hop_by_hop_of_request, plain_name
from sandbox_http.messages import RequestHead, UnsupportedRequest, make_request
from sandbox_server.domain.errors import NotPassedOn
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.credentials import query_without_credentials, without_credentials
from sandbox_server.proxy.public_origin import Outside

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


def read_request(
    scope: Scope, address: PortAddress, outside: Outside, *, path: bytes, added: Headers = ()
) -> RequestHead:
    """Make what goes on to a sandbox: `path` in place of what was asked, and `added` in place of the like."""
    query = query_without_credentials(scope["query_string"])
    passed = _replaced(_passed(scope["headers"], outside, address), added)
    headers = [*outside.told(address), *passed, *address.headers, *added]
    try:
        return make_request(scope, target=path + b"?" + query if query else path, headers=headers)
    except UnsupportedRequest as error:
        raise NotPassedOn(str(error)) from None


def _passed(headers: Headers, outside: Outside, address: PortAddress) -> Iterator[Header]:
    dropped = hop_by_hop_of_request(headers)
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
