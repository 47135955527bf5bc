from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from sandbox_http.headers import find_header
from sandbox_http.tunnel import EXTENSION, ClientConnection


class ClientGone(Exception):
    """The client has disconnected."""


@dataclass(frozen=True)
class Client:
    """The client of a proxied request, as ASGI scope and channels."""

    scope: Scope
    receive: Receive
    send: Send

    @property
    def connection(self) -> ClientConnection:
        connection: ClientConnection = self.scope["extensions"][EXTENSION]["connection"]
        return connection

    def require_present(self) -> None:
        """Raise `ClientGone` if the connection is closed."""
        if EXTENSION in self.scope.get("extensions", {}) and self.connection.is_closing():
            raise ClientGone

    @property
    def host(self) -> str:
        """Return the Host header as it was sent."""
        sent = find_header(self.scope["headers"], b"host") or b""
        return sent.decode("latin-1")

    @property
    def address(self) -> str | None:
        peer = self.scope.get("client")
        return None if peer is None else peer[0]
