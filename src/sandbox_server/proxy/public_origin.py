from collections.abc import Iterator
from dataclasses import dataclass

from sandbox_http.headers import Header
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.targets import PublicAddress

# Headers that contain the origin of the page, or of the server.
_REQUEST_HEADERS = frozenset({b"origin", b"referer"})
_RESPONSE_HEADERS = frozenset({b"access-control-allow-origin", b"content-location", b"location"})


@dataclass(frozen=True, kw_only=True)
class PublicOrigin:
    """The public origin of a server in a sandbox.

    Frameworks compare the `Origin` of a request with its `Host`. If the provider preserves the host, the server sees the
    public one in both. Otherwise it sees the provider's in both, and response headers that contain it are rewritten.
    """

    scheme: str
    host: str
    client: str | None
    path: str = ""
    """Path prefix of the server, if it has no host of its own."""

    @property
    def has_own_host(self) -> bool:
        return not self.path

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def forwarded_headers(self, address: PortAddress) -> Iterator[Header]:
        """List the headers that describe the public origin, `Host` first."""
        yield b"Host", address.authority.encode()
        if self.client is not None:
            yield b"X-Forwarded-For", self.client.encode()
        if address.is_shared:
            yield b"X-Forwarded-Host", self.host.encode()
            yield b"X-Forwarded-Proto", self.scheme.encode()
        if self.path:
            yield b"X-Forwarded-Prefix", self.path.encode()

    def rewrite_request_header(self, name: bytes, value: bytes, address: PortAddress) -> bytes:
        if address.is_shared or name not in _REQUEST_HEADERS:
            return value
        return _replace_origin(value, self.url, address.origin)

    def rewrite_response_header(self, name: bytes, value: bytes, address: PortAddress) -> bytes:
        if name not in _RESPONSE_HEADERS:
            return value
        value = _replace_origin(value, address.origin, self.url)
        return value if self.has_own_host or name.startswith(b"access") else self._add_prefix(value)

    def _add_prefix(self, location: bytes) -> bytes:
        path = location.removeprefix(self.url.encode())
        if not path.startswith(b"/") or path.startswith((b"//", self.path.encode() + b"/")):
            return location
        return self.path.encode() + path


def path_origin(client: Client, public_address: PublicAddress, *, path: str) -> PublicOrigin:
    """Describe the public origin of a path of the API."""
    scheme = public_address.scheme_at(client.host, otherwise=client.scope["scheme"])
    return PublicOrigin(scheme=scheme, host=client.host, client=client.address, path=path)


def _replace_origin(url: bytes, before: str, after: str) -> bytes:
    old = before.encode()
    is_there = url.startswith(old) and url[len(old) : len(old) + 1] in (b"", b"/", b"?", b"#")
    return after.encode() + url[len(old) :] if is_there else url
