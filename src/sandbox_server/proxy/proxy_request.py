from dataclasses import dataclass

from sandbox_http.headers import Headers
from sandbox_server.domain.access import Caller, LoginCaller
from sandbox_server.domain.errors import LoginRefused
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget


@dataclass(frozen=True, kw_only=True)
class ProxyRequest:
    """A request that is to be passed on: whose, where to, and as what. There is none for who is merely signed in."""

    client: Client
    caller: Caller
    target: PortTarget
    origin: PublicOrigin
    path: bytes
    """What the server in the sandbox is asked for, as it is in the first line of a request."""
    counts_as_activity: bool = True
    """Whether the sandbox wakes for it, and is awake for as long as bytes move."""
    sends_close_frame: bool = False
    """Whether it is a WebSocket whose end we say too, and whose pings are no use of the sandbox."""
    extra_headers: Headers = ()
    """What we tell that server ourselves, in place of what the caller says."""

    def __post_init__(self) -> None:
        if isinstance(self.caller, LoginCaller):
            raise LoginRefused("Nothing is passed on to a sandbox for who is signed in.")
