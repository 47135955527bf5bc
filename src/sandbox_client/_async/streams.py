from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import TypeVar

from sandbox_client._async.concurrency import sleep
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import SandboxError
from sandbox_client.protocol.calls import Call
from sandbox_client.protocol.retries import Retries
from sandbox_client.protocol.sse import EventParser

T = TypeVar("T")

_COME_BACK_S = 1.0  # where the server does not say when


async def follow_stream(
    transport: AsyncTransport,
    call: Call,
    read: Callable[[str, str], T | None],
    *,
    after: int | None = None,
    missed: T | None = None,
    is_last: Callable[[T], bool] = lambda _: False,
) -> AsyncGenerator[T, None]:
    """Give what a stream tells until it is over, through lost connections: each once, and none left out.

    Of a stream that replays nothing, `missed` is given wherever something may be.
    """
    parser = EventParser(last_id="" if after is None else str(after))
    lost: Retries | None = None
    begun = False
    while True:
        pause = 0.0
        try:
            async with transport.attempt(_from(call, parser.last_id)) as answer:
                if answer.status_code == HTTPStatus.NO_CONTENT:
                    return
                lost = None
                if begun and missed is not None:
                    yield missed
                begun = True
                async for content in answer.aiter_bytes():
                    for event in parser.feed(content):
                        told = read(event.data, event.id)
                        if told is not None:
                            yield told
                            if is_last(told):
                                return
        except SandboxError as error:
            lost = lost or transport.retries(call)
            pause = lost.pause_after(error)
        retry_s = parser.retry_s
        parser = EventParser(last_id=parser.last_id)
        await sleep(max(pause, _COME_BACK_S if begun and retry_s is None else retry_s or 0))


def _from(call: Call, last_id: str) -> Call:
    streamed = call.streamed()
    return streamed.with_headers({"Last-Event-ID": last_id}) if last_id else streamed
