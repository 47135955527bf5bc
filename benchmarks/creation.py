from collections.abc import Awaitable, Callable

from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.runtime import BareRuntime
from benchmarks.timing import medians, timed

_ROUNDS = 40


async def _nothing() -> None:
    pass


async def cold_create(engine: Engine, bare: BareRuntime) -> Figure:
    """Compare a create with the SDK with an overlay mount and `runc run` of the same bundle."""
    p50, floor_p50 = await _create(engine, bare)
    return Figure("create, p50 / overlay + runc run", p50, "ms", target=1.6, floor=floor_p50)


async def unprepared_create(engine: Engine, bare: BareRuntime) -> Figure:
    """Compare the same without prepared disks and networks."""
    p50, floor_p50 = await _create(engine, bare)
    return Figure("the same with an empty pool", p50, "ms", floor=floor_p50)


async def ready_create(engine: Engine, bare: BareRuntime) -> Figure:
    """Compare the same with a ready sandbox in the warm pool."""
    p50, floor_p50 = await _create(engine, bare, prepare=engine.wait_ready)
    return Figure("create of a ready one, p50", p50, "ms", target=0.3, floor=floor_p50)


async def _create(
    engine: Engine, bare: BareRuntime, *, prepare: Callable[[], Awaitable[None]] = _nothing
) -> tuple[float, float]:
    async def ours() -> float:
        await prepare()
        elapsed, sandbox = await timed(engine.create())
        await sandbox.kill()
        return elapsed

    async def floor() -> float:
        await prepare()
        elapsed, container = await timed(bare.start())
        await bare.delete(container)
        return elapsed

    return await medians(ours, floor, rounds=_ROUNDS)
