import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK = 64 * 1024


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Open one to hand to a process, whose end may then be waited for while others still hold it open."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, writing = os.pipe()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        yield reader, writing
    finally:
        transport.close()


async def read_lines(stream: asyncio.StreamReader, *, at_most: int) -> AsyncIterator[bytes | None]:
    """Give each line, and None for one that is too long to be kept."""
    kept = bytearray()
    too_long = False
    while chunk := await stream.read(_CHUNK):
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield None if too_long or len(kept) + len(end) > at_most else bytes(kept + end)
            kept.clear()
            too_long = False
        too_long = too_long or len(kept) + len(rest) > at_most
        kept = bytearray() if too_long else kept + rest
    if kept or too_long:
        yield None if too_long else bytes(kept)
