from dataclasses import dataclass

from sandbox_http.headers import Headers
from sandbox_server.domain.access import Caller, LoginCaller
from sandbox_server.domain.errors import LoginRefused
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.exchange import Relay
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget


@dataclass(frozen=True, kw_only=True)
class ProxyRequest:
    """A request to forward: client, caller and target. Browser logins are refused."""

    client: Client
    caller: Caller
    target: PortTarget
    origin: PublicOrigin
    path: bytes
    """Path for the request line, escaped."""
    is_found: bool = False
    """Whether the sandbox was found a moment ago, with the method for it: no other lookup is made."""
    address: PortAddress | None = None
    """The server's address, where it is not at a port of a sandbox."""
    counts_as_activity: bool = True
    """Whether it resumes the sandbox, and traffic keeps it awake."""
    sends_close_frame: bool = False
    """Whether it is a WebSocket that this server closes with a reason, and whose pings are no activity."""
    relay: Relay | None = None
    """Forwards the messages of an upgraded connection; otherwise its bytes are forwarded."""
    extra_headers: Headers = ()
    """Headers of this server; they replace the caller's headers of the same name."""

    def __post_init__(self) -> None:
        if isinstance(self.caller, LoginCaller):
            raise LoginRefused(
                "A browser login cannot be used for requests to a sandbox: use a link or an API key."
            )
