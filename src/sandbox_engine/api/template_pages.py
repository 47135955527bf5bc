from collections.abc import Sequence
from typing import Protocol, TypeVar

from sandbox_engine.errors import InvalidRequest


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Identified)


def page(items: Sequence[T], *, limit: int, token: str | None) -> tuple[Sequence[T], str | None]:
    """Cut out one page, and give the token of the next one: the id of the last item shown."""
    ids = [item.id for item in items]
    if token and token not in ids:
        raise InvalidRequest("Invalid next token")
    first = ids.index(token) + 1 if token else 0
    shown = items[first : first + limit]
    return shown, shown[-1].id if len(items) > first + limit else None
