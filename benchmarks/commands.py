import asyncio
from collections.abc import Awaitable, Callable

from e2b import AsyncSandbox

from benchmarks.report import Figure
from benchmarks.runtime import BareContainer, BareRuntime
from benchmarks.timing import medians, timed


async def run_true(
    sandbox: AsyncSandbox, bare: BareRuntime, container: BareContainer, *, at_once: int, rounds: int
) -> Figure:
    """Compare `commands.run("true")` with the SDK with `runc exec ... /bin/bash -l -c true`."""

    async def ours() -> float:
        return await _together(lambda: sandbox.commands.run("true"), at_once)

    async def floor() -> float:
        return await _together(lambda: bare.run_true(container), at_once)

    p50, floor_p50 = await medians(ours, floor, rounds=rounds)
    name = f'commands.run("true") x {at_once}, p50 / runc exec'
    return Figure(name, p50, "ms", target=1.5, floor=floor_p50)


async def _together(run: Callable[[], Awaitable[object]], times: int) -> float:
    elapsed, _ = await timed(asyncio.gather(*(run() for _ in range(times))))
    return elapsed
