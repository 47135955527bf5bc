import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandbox_server.domain.errors import SandboxNotFound

_OF_SANDBOX = re.compile(r"(?:.*\.)?[0-9]+-[^.]*")
_LABEL = re.compile(r"([0-9]{1,5})-([a-z0-9]{20})")
_PORT = re.compile(r":[0-9]+$")
_MOST = 65_535


@dataclass(frozen=True)
class PortTarget:
    """A port of a sandbox."""

    sandbox_id: str
    port: int


class PublicAddress:
    """Where this server is reached from origin, and below it every port of every sandbox.

    A port has a host of its own, `{port}-{sandbox id}.{host}`, and so an origin that pages of other sandboxes and the
    API are not of.
    """

    def __init__(self, url: str) -> None:
        self.api_url = url
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.host = parts.netloc.lower()
        self._add_prefix = f".{_name_of(self.host)}"

    @property
    def websocket_url(self) -> str:
        """Name where the API's WebSockets are."""
        return self.api_url.replace("http", "ws", 1)

    def scheme_at(self, host: str, *, otherwise: str) -> str:
        """Tell by what a host was asked: only by our own name is it known to be behind TLS."""
        return self.scheme if host.lower() == self.host else otherwise

    def url(self, sandbox_id: str, port: int | str) -> str:
        """Name a port by a host of its own, or any port, as a pattern."""
        return f"{self.scheme}://{port}-{sandbox_id}.{self.host}"

    def path_url(self, sandbox_id: str, port: int) -> str:
        """Name a port by a path of the API."""
        return f"{self.api_url}{path_of(PortTarget(sandbox_id, port))}/"

    def is_sandbox_host(self, host: str) -> bool:
        """Tell whether a request's host is for sandboxes, be there such a one or not."""
        return self._label(host) is not None

    def find(self, host: str) -> PortTarget:
        """Find the port that a host stands for."""
        label = self._label(host) or host
        found = _LABEL.fullmatch(label)
        if found is None or not 0 < int(found[1]) <= _MOST:
            raise SandboxNotFound(label)
        return PortTarget(found[2], int(found[1]))

    def _label(self, host: str) -> str | None:
        name = _name_of(host.lower())
        label = name.removesuffix(self._add_prefix)
        return label if label != name and _OF_SANDBOX.fullmatch(label) else None


def path_of(target: PortTarget) -> str:
    """Name the path below which the API passes on to a port."""
    return f"/v1/sandboxes/{target.sandbox_id}/ports/{target.port}/proxy"


def _name_of(host: str) -> str:
    return _PORT.sub("", host).removesuffix(".")
