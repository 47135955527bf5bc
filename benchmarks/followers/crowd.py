import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

_PROCESSES = 2


@dataclass(frozen=True)
class Crowd:
    """Many followers of one stream, in several processes."""

    processes: list[Process]

    async def leave(self) -> "Experience":
        """Stop all followers and return their measurements."""
        told = [await _leave(process) for process in self.processes]
        latencies: Counter[int] = Counter()
        for one in told:
            latencies.update({int(ms): count for ms, count in one["latencies_ms"].items()})
        return Experience(
            latencies,
            received=sum(one["received"] for one in told),
            lost=sum(one["lost"] for one in told),
            closed=sum(one["closed"] for one in told),
        )


@dataclass(frozen=True)
class Experience:
    """Latencies of events by whole milliseconds, and errors."""

    latencies_ms: Counter[int]
    received: int
    lost: int
    closed: int

    def quantile(self, part: float) -> float:
        left = part * sum(self.latencies_ms.values())
        for latency in sorted(self.latencies_ms):
            left -= self.latencies_ms[latency]
            if left <= 0:
                return latency + 1
        return float("inf")


@asynccontextmanager
async def following(url: str, *, key: str, count: int) -> AsyncIterator[Crowd]:
    """Start this many followers of the stream at a URL."""
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(_client(url, key, count // _PROCESSES))
            for _ in range(_PROCESSES)
        ]
        for process in started:
            assert process.stdout is not None
            if await process.stdout.readline() != b"following\n":
                raise RuntimeError("a client ended before it followed")
        yield Crowd(started)


@asynccontextmanager
async def _client(url: str, key: str, count: int) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.followers.client", url, key, str(count)),
        stdin=PIPE,
        stdout=PIPE,
        limit=2**24,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _leave(process: Process) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    told: dict[str, Any] = json.loads(await process.stdout.readline())
    return told
