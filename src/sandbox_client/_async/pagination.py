from collections.abc import AsyncGenerator

from sandbox_client._async.transport import AsyncTransport
from sandbox_client.models.wire import Item, Page
from sandbox_client.protocol.calls import Query, call


async def list_all(
    transport: AsyncTransport, path: str, kind: type[Page[Item]], query: Query | None = None
) -> AsyncGenerator[Item, None]:
    """Yield all items of a list, fetching pages as needed."""
    cursor: str | None = None
    while True:
        request = call("GET", path, query={**(query or {}), "cursor": cursor})
        page = await transport.fetch(kind, request)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
