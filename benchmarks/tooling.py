import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import perf_counter

from benchmarks.report import Figure
from benchmarks.timing import medians
from benchmarks.tool_server.process import ToolServer, bare_server, our_server
from benchmarks.tool_server.session import Session

_STARTS = 5
_BATCHES = 15
_CALLS = 100
_MOST_START_MS = 1000
_MOST_IDLE_MB = 100
_MOST_CALL_MS = 1000 / 300


async def tools() -> AsyncIterator[Figure]:
    """Compare the tool server of sandboxes with a minimal one of the same library."""
    start, floor = await medians(
        partial(_start, our_server), partial(_start, bare_server), rounds=_STARTS
    )
    yield Figure("tool server, start to first health / bare", start, "ms", floor=floor)
    yield Figure("the same, p50", start, "ms", target=_MOST_START_MS)
    async with our_server() as ours, bare_server() as bare:
        idle = ours.resident_mb()
        yield Figure("tool server, idle memory / bare", idle, "MiB", floor=bare.resident_mb())
        yield Figure("the same", idle, "MiB", target=_MOST_IDLE_MB)
        read = partial(Session(ours.port).call, "read_file", path="a.txt")
        call = partial(Session(bare.port).call, "trivial")
        p50, floor = await medians(partial(_each, read), partial(_each, call), rounds=_BATCHES)
        yield Figure("read_file over one session, p50 / bare call", p50, "ms", floor=floor)
        yield Figure("the same", p50, "ms", target=_MOST_CALL_MS)
        yield Figure("tool server, memory after that", ours.resident_mb(), "MiB")


async def _start(server: Callable[[], AbstractAsyncContextManager[ToolServer]]) -> float:
    async with server() as started:
        return started.start_ms


async def _each(call: Callable[[], None]) -> float:
    """Return the milliseconds of sequential calls over one session."""

    def batch() -> float:
        begun = perf_counter()
        for _ in range(_CALLS):
            call()
        return (perf_counter() - begun) / _CALLS * 1000

    return await asyncio.to_thread(batch)
