from collections.abc import Generator

from sandbox_client._sync.transport import Transport
from sandbox_client.models.wire import Item, Page
from sandbox_client.protocol.calls import Query, call


def list_all(
    transport: Transport, path: str, kind: type[Page[Item]], query: Query | None = None
) -> Generator[Item, None, None]:
    """Yield all items of a list, fetching pages as needed."""
    cursor: str | None = None
    while True:
        request = call("GET", path, query={**(query or {}), "cursor": cursor})
        page = transport.fetch(kind, request)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
