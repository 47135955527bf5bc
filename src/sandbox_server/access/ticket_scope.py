"""What may be asked with a ticket: reading and WebSockets, and of them what the ticket is for."""

from starlette.datastructures import QueryParams
from starlette.types import Scope

from sandbox_server.access.secrets import is_ticket
from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.errors import TicketRefused

_NAME = b"ticket="
_READING = frozenset({"GET", "HEAD"})
_SANDBOXES = "/v1/sandboxes"
_EVENTS = "/v1/events"
_LOGS = "/v1/logs"


def remove_tickets(scope: Scope) -> str | None:
    """Take our tickets out of the query, so that nothing that follows has them to tell; gives the first."""
    query: bytes = scope["query_string"]
    if _NAME not in query:
        return None
    parts = query.split(b"&")
    tickets = [part for part in parts if _is_ours(part)]
    scope["query_string"] = b"&".join(part for part in parts if part not in tickets)
    return tickets[0].removeprefix(_NAME).decode() if tickets else None


def require_ticket_scope(caller: TicketCaller, scope: Scope) -> None:
    """Refuse what the ticket is not for, whether or not it is there."""
    if scope["type"] == "http" and scope["method"] not in _READING:
        raise TicketRefused("A ticket changes nothing.")
    if not _is_in_reach(caller, scope):
        raise TicketRefused("The ticket is for something else.")


def accepts_tickets(path: str, method: str) -> bool:
    """Tell whether there are tickets for an operation."""
    return method.upper() in _READING and _is_for_tickets(path)


def _is_in_reach(caller: TicketCaller, scope: Scope) -> bool:
    path = scope["path"]
    if caller.port is not None:
        return False
    if caller.sandbox_id is None:
        return _is_for_tickets(path)
    if path == _LOGS:
        asked = QueryParams(scope["query_string"]).getlist("sandbox")
        return set(asked) == {caller.sandbox_id}
    return _is_at(path, f"{_SANDBOXES}/{caller.sandbox_id}")


def _is_for_tickets(path: str) -> bool:
    return path in {_EVENTS, _LOGS} or _is_at(path, _SANDBOXES)


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _is_ours(part: bytes) -> bool:
    return part.startswith(_NAME) and is_ticket(part.removeprefix(_NAME).decode("latin-1"))
