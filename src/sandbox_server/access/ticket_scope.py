"""The requests that a ticket allows: reads and WebSockets, restricted to the ticket's sandbox."""

from starlette.datastructures import QueryParams
from starlette.types import Scope

from sandbox_server.access.secrets import is_ticket
from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.errors import TicketRefused

_NAME = b"ticket="
_READ_METHODS = frozenset({"GET", "HEAD"})
_SANDBOXES = "/v1/sandboxes"
_EVENTS = "/v1/events"
_LOGS = "/v1/logs"
_DESKTOP = "/desktop"


def remove_tickets(scope: Scope) -> str | None:
    """Remove our tickets from the query, so that nothing downstream can leak them; returns the first."""
    query: bytes = scope["query_string"]
    if _NAME not in query:
        return None
    parts = query.split(b"&")
    tickets = [part for part in parts if _is_ours(part)]
    scope["query_string"] = b"&".join(part for part in parts if part not in tickets)
    return tickets[0].removeprefix(_NAME).decode() if tickets else None


def require_ticket_scope(caller: TicketCaller, scope: Scope) -> None:
    """Reject a request outside the ticket's scope, whether or not its resource exists."""
    if caller.scope.is_of_desktop:
        if not _is_at(scope["path"], f"{_DESKTOP}/{caller.sandbox_id}"):
            raise TicketRefused("The link is for the page of a desktop only.")
        return
    if scope["type"] == "http" and scope["method"] not in _READ_METHODS:
        raise TicketRefused("Tickets allow only read requests.")
    if not _is_in_scope(caller, scope):
        raise TicketRefused("The ticket does not cover this resource.")


def accepts_tickets(path: str, method: str) -> bool:
    """Return whether an operation can be called with a ticket."""
    return method.upper() in _READ_METHODS and _is_for_tickets(path)


def _is_in_scope(caller: TicketCaller, scope: Scope) -> bool:
    path = scope["path"]
    if caller.port is not None:
        return False
    if caller.sandbox_id is None:
        return _is_for_tickets(path)
    if path == _LOGS:
        sandbox_ids = QueryParams(scope["query_string"]).getlist("sandbox")
        return set(sandbox_ids) == {caller.sandbox_id}
    return _is_at(path, f"{_SANDBOXES}/{caller.sandbox_id}")


def _is_for_tickets(path: str) -> bool:
    return path in {_EVENTS, _LOGS} or _is_at(path, _SANDBOXES)


def _is_at(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def _is_ours(part: bytes) -> bool:
    return part.startswith(_NAME) and is_ticket(part.removeprefix(_NAME).decode("latin-1"))
