from collections.abc import Collection
from urllib.parse import urlsplit

from sandbox_server.domain.errors import ForgeHostNotAllowed


class AllowedHosts:
    """The forges that the operator lets this server send requests to.

    Addresses of forges are given by tenants. Without this list, a tenant could make the server send requests to addresses that
    only the server reaches, such as metadata services of clouds.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._origins = frozenset(_origin(host.lower()) for host in hosts)

    def require(self, url: str) -> str:
        """Return the URL without a final slash; raises `ForgeHostNotAllowed`."""
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        if not is_plain or f"{parts.scheme}://{parts.netloc}".lower() not in self._origins:
            raise ForgeHostNotAllowed(url)
        return url.rstrip("/")


def _origin(host: str) -> str:
    return host.rstrip("/") if "://" in host else f"https://{host}"
