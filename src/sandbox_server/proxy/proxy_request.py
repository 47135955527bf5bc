from dataclasses import dataclass

from sandbox_http.headers import Headers
from sandbox_server.domain.access import Caller, LoginCaller
from sandbox_server.domain.errors import LoginRefused
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import Outside
from sandbox_server.proxy.targets import Destination


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A request that is to be passed on: whose, where to, and as what. There is none for who is merely signed in."""

    client: Client
    caller: Caller
    destination: Destination
    outside: Outside
    path: bytes
    """What the server in the sandbox is asked for, as it is in the first line of a request."""
    is_use: bool = True
    """Whether the sandbox wakes for it, and is awake for as long as bytes move."""
    tells_end: bool = False
    """Whether it is a WebSocket whose end we say too, and whose pings are no use of the sandbox."""
    added: Headers = ()
    """What we tell that server ourselves, in place of what the caller says."""

    def __post_init__(self) -> None:
        if isinstance(self.caller, LoginCaller):
            raise LoginRefused("Nothing is passed on to a sandbox for who is signed in.")
