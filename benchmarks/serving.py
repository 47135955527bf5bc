import asyncio
from collections.abc import AsyncIterator

from benchmarks.engine import started_engine
from benchmarks.report import Figure
from benchmarks.server import Server, started_server
from benchmarks.timing import medians, timed

_CREATES = 40
_READS = 8000
_AT_ONCE = 32


async def requests() -> AsyncIterator[Figure]:
    """Compare a create with the bare SDK's, and measure reads of a sandbox."""
    async with started_engine() as engine, started_server(engine) as server:

        async def ours() -> float:
            elapsed, sandbox_id = await timed(server.create())
            await server.delete(sandbox_id)
            return elapsed

        async def floor() -> float:
            elapsed, sandbox = await timed(engine.create())
            await sandbox.kill()
            return elapsed

        p50, floor_p50 = await medians(ours, floor, rounds=_CREATES)
        yield Figure("create through the server, p50 / SDK", p50, "ms", floor=floor_p50)
        yield Figure("the same, what is added", p50 - floor_p50, "ms", target=10)
        yield Figure("status call, time of a core", await _read(server), "ms", target=1)


async def _read(server: Server) -> float:
    sandbox_id = await server.create()
    left = iter(range(_READS))

    async def ask() -> None:
        for _ in left:
            await server.read(sandbox_id)

    before = server.cpu_seconds()
    await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
    busy = server.cpu_seconds() - before
    await server.delete(sandbox_id)
    return busy / _READS * 1000
