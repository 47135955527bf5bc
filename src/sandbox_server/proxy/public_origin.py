from collections.abc import Iterator
from dataclasses import dataclass

from sandbox_http.headers import Header
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.targets import PublicAddress

# Where a browser says which page asks, and where an answer names its own server.
_ASKING = frozenset({b"origin", b"referer"})
_NAMING = frozenset({b"access-control-allow-origin", b"content-location", b"location"})


@dataclass(frozen=True, kw_only=True)
class Outside:
    """How a server in a sandbox is reached from outside, which it is told.

    Frameworks compare a request's origin with its host. Where the provider leaves us the host, the server sees the one
    from outside in both; where it wants its own, that is in both, and answers that name it are translated.
    """

    scheme: str
    host: str
    client: str | None
    path: str = ""
    """The path below which the server is, where it has no host of its own."""

    @property
    def has_own_host(self) -> bool:
        return not self.path

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    def told(self, address: PortAddress) -> Iterator[Header]:
        """List what the server is told of the outside, its host first."""
        yield b"Host", address.authority.encode()
        if self.client is not None:
            yield b"X-Forwarded-For", self.client.encode()
        if address.is_shared:
            yield b"X-Forwarded-Host", self.host.encode()
            yield b"X-Forwarded-Proto", self.scheme.encode()
        if self.path:
            yield b"X-Forwarded-Prefix", self.path.encode()

    def as_asked_inside(self, name: bytes, value: bytes, address: PortAddress) -> bytes:
        """Translate a header of a request."""
        if address.is_shared or name not in _ASKING:
            return value
        return _moved(value, self.origin, address.origin)

    def as_seen_outside(self, name: bytes, value: bytes, address: PortAddress) -> bytes:
        """Translate a header of an answer."""
        if name not in _NAMING:
            return value
        value = _moved(value, address.origin, self.origin)
        return value if self.has_own_host or name.startswith(b"access") else self._below(value)

    def _below(self, location: bytes) -> bytes:
        path = location.removeprefix(self.origin.encode())
        if not path.startswith(b"/") or path.startswith((b"//", self.path.encode() + b"/")):
            return location
        return self.path.encode() + path


def path_origin(client: Client, public_address: PublicAddress, *, path: str) -> Outside:
    """Describe how the client reached a path of the API."""
    scheme = public_address.scheme_at(client.host, otherwise=client.scope["scheme"])
    return Outside(scheme=scheme, host=client.host, client=client.address, path=path)


def _moved(url: bytes, before: str, after: str) -> bytes:
    old = before.encode()
    is_there = url.startswith(old) and url[len(old) : len(old) + 1] in (b"", b"/", b"?", b"#")
    return after.encode() + url[len(old) :] if is_there else url
