"""Pagination. A cursor names the last item of a page, so items added meanwhile do not shift the next page."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Response
from fastapi.exceptions import RequestValidationError

from sandbox_client.models import Page
from sandbox_server.domain.ids import PATTERN
from sandbox_server.log.source import Page as SourcePage

Row = TypeVar("Row")
Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number of items per page.")]
Cursor = Annotated[
    str | None, Query(max_length=100, description="`next_cursor` of the previous page.")
]
DEFAULT_LIMIT = 50

_LARGEST_NUMBER = 2**63 - 1


def read_id(cursor: str | None) -> str | None:
    """Decode a cursor to an id."""
    if cursor is None:
        return None
    position = _decode(cursor)
    if re.match(PATTERN, position) is None:
        raise _refused(cursor)
    return position


def read_number(cursor: str | None) -> int | None:
    """Decode a cursor to a number."""
    if cursor is None:
        return None
    position = _decode(cursor)
    if not (position.isascii() and position.isdigit()) or int(position) > _LARGEST_NUMBER:
        raise _refused(cursor)
    return int(position)


def cursor_at(number: int) -> str:
    """Encode a number as a cursor."""
    return _encode(str(number))


def read_text(cursor: str | None) -> str | None:
    """Decode a cursor to text."""
    return None if cursor is None else _decode(cursor)


def page_of(
    rows: Sequence[Row], items: Sequence[Item], *, limit: int, position: Callable[[Row], str | int]
) -> Page[Item]:
    """Build a page from `limit + 1` rows; the extra row shows that there is another page."""
    more = len(rows) > limit
    return Page(
        items=list(items[:limit]),
        next_cursor=_encode(str(position(rows[limit - 1]))) if more else None,
    )


def respond_with_page(page: SourcePage) -> Response:
    """Answer with a page of a log, whose items are serialized already."""
    next_cursor = f'"{cursor_at(page.position)}"' if page.more else "null"
    items = b",".join(item.data for item in page.items)
    content = b'{"items":[%b],"next_cursor":%b}' % (items, next_cursor.encode())
    return Response(content, media_type="application/json")


def _encode(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    padding = "=" * (-len(cursor) % 4)
    try:
        return base64.b64decode(cursor + padding, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _refused(cursor) from None


def _refused(cursor: str) -> RequestValidationError:
    error = {
        "type": "cursor",
        "loc": ("query", "cursor"),
        "msg": "Invalid cursor; use `next_cursor` of the previous page.",
        "input": cursor,
    }
    return RequestValidationError([error])
