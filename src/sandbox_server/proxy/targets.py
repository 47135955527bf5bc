import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandbox_server.domain.errors import SandboxNotFound

_OF_SANDBOX = re.compile(r"(?:.*\.)?[0-9]+-[^.]*")
_LABEL = re.compile(r"([0-9]{1,5})-([a-z0-9]{20})")
_PORT = re.compile(r":[0-9]+$")
_MAX_PORT = 65_535


@dataclass(frozen=True)
class PortTarget:
    """A port of a sandbox."""

    sandbox_id: str
    port: int


class PublicAddress:
    """The public address of this server and of every port of every sandbox.

    A port has a host of its own, `{port}-{sandbox id}.{host}`, and therefore an origin that it shares neither with other
    sandboxes nor with the API.
    """

    def __init__(self, url: str) -> None:
        self.api_url = url
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.host = parts.netloc.lower()
        self._add_prefix = f".{_name_of(self.host)}"

    @property
    def websocket_url(self) -> str:
        """Return the base URL of the API's WebSockets."""
        return self.api_url.replace("http", "ws", 1)

    def scheme_at(self, host: str, *, otherwise: str) -> str:
        """Return the scheme for a host. Only the configured host is known to be behind TLS."""
        return self.scheme if host.lower() == self.host else otherwise

    def url(self, sandbox_id: str, port: int | str) -> str:
        """Return the URL of a port on its own host; `port` may be a placeholder."""
        return f"{self.scheme}://{port}-{sandbox_id}.{self.host}"

    def path_url(self, sandbox_id: str, port: int) -> str:
        """Return the URL of a port below a path of the API."""
        return f"{self.api_url}{path_of(PortTarget(sandbox_id, port))}/"

    def is_sandbox_host(self, host: str) -> bool:
        """Return whether a host has the form of a sandbox host, whether or not the sandbox exists."""
        return self._label(host) is not None

    def find(self, host: str) -> PortTarget:
        """Parse a sandbox host."""
        label = self._label(host) or host
        found = _LABEL.fullmatch(label)
        if found is None or not 0 < int(found[1]) <= _MAX_PORT:
            raise SandboxNotFound(label)
        return PortTarget(found[2], int(found[1]))

    def _label(self, host: str) -> str | None:
        name = _name_of(host.lower())
        label = name.removesuffix(self._add_prefix)
        return label if label != name and _OF_SANDBOX.fullmatch(label) else None


def path_of(target: PortTarget) -> str:
    """Return the path of a port below the API."""
    return f"/v1/sandboxes/{target.sandbox_id}/ports/{target.port}/proxy"


def _name_of(host: str) -> str:
    return _PORT.sub("", host).removesuffix(".")
