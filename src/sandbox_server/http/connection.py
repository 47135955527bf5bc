from collections.abc import Callable

from starlette.types import Scope

from sandbox_http.tunnel import EXTENSION, ClientConnection


def connection_of(scope: Scope) -> ClientConnection | None:
    """Find the connection that a request came by, if our own protocol serves it."""
    extension: dict[str, ClientConnection] = scope.get("extensions", {}).get(EXTENSION, {})
    return extension.get("connection")


def abort_of(scope: Scope) -> Callable[[], None]:
    """Find how a request's connection is broken off at once; where that cannot be done, nothing is."""
    connection = connection_of(scope)
    return _nothing if connection is None else connection.abort


def _nothing() -> None:
    """Leave it to the server to close the connection."""
