from collections.abc import Callable

from starlette.types import Scope

from sandbox_http.tunnel import EXTENSION, ClientConnection


def connection_of(scope: Scope) -> ClientConnection | None:
    """Find the connection of a request, if our own protocol serves it."""
    extension: dict[str, ClientConnection] = scope.get("extensions", {}).get(EXTENSION, {})
    return extension.get("connection")


def abort_of(scope: Scope) -> Callable[[], None]:
    """Return a function that aborts the request's connection; a no-op where that is not supported."""
    connection = connection_of(scope)
    return _leave_open if connection is None else connection.abort


def _leave_open() -> None:
    """Leave closing the connection to the server."""
