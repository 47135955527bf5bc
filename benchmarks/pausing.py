from e2b import AsyncSandbox

from benchmarks.report import Figure
from benchmarks.runtime import BareContainer, BareRuntime
from benchmarks.timing import medians, timed

_ROUNDS = 40


async def pause_and_resume(
    sandbox: AsyncSandbox, bare: BareRuntime, container: BareContainer
) -> Figure:
    """Compare a pause and a connect with the SDK with `runc pause` and `runc resume`."""

    async def ours() -> float:
        elapsed, _ = await timed(_rest(sandbox))
        return elapsed

    async def floor() -> float:
        elapsed, _ = await timed(bare.rest(container))
        return elapsed

    p50, floor_p50 = await medians(ours, floor, rounds=_ROUNDS)
    return Figure("pause + resume, p50 / the runtime's", p50, "ms", target=3, floor=floor_p50)


async def first_output(sandbox: AsyncSandbox) -> Figure:
    """Measure what a resume adds to the time that a command's output takes."""

    async def resumed() -> float:
        await sandbox.pause()
        elapsed, _ = await timed(_wake(sandbox))
        return elapsed

    async def running() -> float:
        elapsed, _ = await timed(sandbox.commands.run("echo"))
        return elapsed

    p50, running_p50 = await medians(resumed, running, rounds=_ROUNDS)
    name = "resume to the first output, p50, above running"
    return Figure(name, p50 - running_p50, "ms", target=20)


async def _rest(sandbox: AsyncSandbox) -> None:
    await sandbox.pause()
    await sandbox.connect(timeout=600)


async def _wake(sandbox: AsyncSandbox) -> None:
    await sandbox.connect(timeout=600)
    await sandbox.commands.run("echo")
