from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel

from sandbox_client._sync.transport import Transport
from sandbox_client.calls import Query, call
from sandbox_client.models import Page

Model = TypeVar("Model", bound=BaseModel)


def list_all(
    transport: Transport, path: str, kind: type[Model], query: Query | None = None
) -> Iterator[Model]:
    """Give the items of a list, part by part as they are taken."""
    cursor: str | None = None
    while True:
        asked = call("GET", path, query={**(query or {}), "cursor": cursor})
        page = transport.ask(Page[kind], asked)  # type: ignore[valid-type]
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
