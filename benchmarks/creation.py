from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.runtime import BareRuntime
from benchmarks.timing import medians, timed

_ROUNDS = 40


async def cold_create(engine: Engine, bare: BareRuntime) -> Figure:
    """Compare a sandbox by the SDK with an overlay mount and `runc run` of the same bundle."""
    p50, floor_p50 = await _create(engine, bare)
    return Figure("create, p50 / overlay + runc run", p50, "ms", target=1.6, floor=floor_p50)


async def unprepared_create(engine: Engine, bare: BareRuntime) -> Figure:
    """Compare the same where the engine keeps neither disks nor networks ready."""
    p50, floor_p50 = await _create(engine, bare)
    return Figure("the same with an empty pool", p50, "ms", floor=floor_p50)


async def _create(engine: Engine, bare: BareRuntime) -> tuple[float, float]:
    async def ours() -> float:
        elapsed, sandbox = await timed(engine.create())
        await sandbox.kill()
        return elapsed

    async def floor() -> float:
        elapsed, container = await timed(bare.start())
        await bare.delete(container)
        return elapsed

    return await medians(ours, floor, rounds=_ROUNDS)
