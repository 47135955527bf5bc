"""Pagination by time; tokens stay valid when the items they point to are deleted."""

import base64
import binascii
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from sandbox_engine.system.errors import InvalidRequest

_SEPARATOR = "__"

Position = tuple[float, str]


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Identified)


def page(
    items: Iterable[T],
    *,
    at: Callable[[T], datetime],
    limit: int,
    token: str | None,
    ascending: bool = False,
) -> tuple[list[T], str | None]:
    """Return one page, and the token of the next one if there is one."""
    sign = 1 if ascending else -1

    def place(item: T) -> Position:
        return sign * at(item).timestamp(), item.id

    found = sorted(items, key=place)
    if token:
        time, last = _parse_token(token)
        found = [item for item in found if place(item) > (sign * time, last)]
    shown = found[:limit]
    return shown, _token(at(shown[-1]), shown[-1].id) if len(found) > limit else None


def _token(time: datetime, last: str) -> str:
    return base64.urlsafe_b64encode(f"{time.timestamp()!r}{_SEPARATOR}{last}".encode()).decode()


def _parse_token(token: str) -> Position:
    try:
        time, separator, last = base64.urlsafe_b64decode(token).decode().partition(_SEPARATOR)
        if not separator:
            raise InvalidRequest("Invalid next token")
        return float(time), last
    except (ValueError, binascii.Error):
        raise InvalidRequest("Invalid next token") from None
