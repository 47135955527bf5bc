from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from sandbox_client import models
from sandbox_client._async.pagination import list_all
from sandbox_client._async.streams import follow_stream
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.events import LogItem
from sandbox_client.events.parsing import read_event, read_log_item
from sandbox_client.protocol.calls import Query, call


def read_events(
    transport: AsyncTransport,
    path: str,
    *,
    after: int | None,
    tail: int | None,
    types: Iterable[str],
    causes: Iterable[str],
    follow: bool,
) -> AsyncGenerator[models.EventRead | models.LogGap, None]:
    """Read events, as a list or as a stream."""
    query: Query = {"type": list(types), "cause": list(causes)}
    if not follow:
        return list_all(
            transport,
            path,
            models.Page[models.EventRead | models.LogGap],
            {**query, "after": after},
        )
    request = call("GET", path, query={**query, "tail": tail})
    return follow_stream(transport, request, read_event, after=after)


def read_log(
    transport: AsyncTransport,
    path: str,
    *,
    after: int | None,
    tail: int | None,
    sources: Iterable[str],
    follow: bool,
    sandboxes: Iterable[str] = (),
) -> AsyncGenerator[LogItem, None]:
    """Read a log, as a list or as a stream."""
    query: Query = {"sandbox": list(sandboxes), "source": list(sources)}
    if not follow:
        kind = models.Page[models.LogEvent | models.LogRecord | models.LogGap]
        return list_all(transport, path, kind, {**query, "after": after})
    request = call("GET", path, query={**query, "tail": tail})
    return follow_stream(transport, request, read_log_item, after=after)
