from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel

from sandbox_client._async.transport import AsyncTransport
from sandbox_client.calls import Query, call
from sandbox_client.models import Page

Model = TypeVar("Model", bound=BaseModel)


async def list_all(
    transport: AsyncTransport, path: str, kind: type[Model], query: Query | None = None
) -> AsyncIterator[Model]:
    """Give the items of a list, part by part as they are taken."""
    cursor: str | None = None
    while True:
        asked = call("GET", path, query={**(query or {}), "cursor": cursor})
        page = await transport.ask(Page[kind], asked)  # type: ignore[valid-type]
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
