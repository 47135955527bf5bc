from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from http import HTTPStatus
from typing import TypeVar

from sandbox_client import models
from sandbox_client._async.concurrency import sleep
from sandbox_client._async.pagination import list_all
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import SandboxError
from sandbox_client.events import LogItem
from sandbox_client.events.parsing import read_event, read_log_item
from sandbox_client.protocol.calls import Call, Query, call
from sandbox_client.protocol.retries import Retries
from sandbox_client.protocol.sse import EventParser

T = TypeVar("T")

_RECONNECT_S = 1.0  # unless the server sends `retry`


async def follow_stream(
    transport: AsyncTransport,
    call: Call,
    parse: Callable[[str, str], T | None],
    *,
    after: int | None = None,
    missed: T | None = None,
    is_last: Callable[[T], bool] = lambda _: False,
) -> AsyncGenerator[T, None]:
    """Follow a stream of events to its end, across lost connections: each event exactly once.

    For a stream that cannot be replayed, `missed` is yielded after each reconnect.
    """
    parser = EventParser(last_id="" if after is None else str(after))
    retries: Retries | None = None
    is_reconnect = False
    while True:
        pause = 0.0
        try:
            async with transport.attempt(_from(call, parser.last_id)) as response:
                if response.status_code == HTTPStatus.NO_CONTENT:
                    return
                retries = None
                if is_reconnect and missed is not None:
                    yield missed
                is_reconnect = True
                async for content in response.aiter_bytes():
                    for event in parser.feed(content):
                        item = parse(event.data, event.id)
                        if item is not None:
                            yield item
                            if is_last(item):
                                return
        except SandboxError as error:
            retries = retries or transport.retries(call)
            pause = retries.delay_after(error)
        retry_s = parser.retry_s
        parser = EventParser(last_id=parser.last_id)
        await sleep(max(pause, _RECONNECT_S if is_reconnect and retry_s is None else retry_s or 0))


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


def _from(call: Call, last_id: str) -> Call:
    streamed = call.streamed()
    return streamed.with_headers({"Last-Event-ID": last_id}) if last_id else streamed
