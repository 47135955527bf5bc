import os
import sys
from collections.abc import AsyncIterator

import uvloop

from benchmarks import builds, commands, creation, pausing
from benchmarks.density import density
from benchmarks.engine import started_engine
from benchmarks.forking import forks
from benchmarks.queueing import queues
from benchmarks.report import Figure, print_figure, print_heading
from benchmarks.runtime import bare_runtime


async def figures() -> AsyncIterator[Figure]:
    """Everything measured, in the order it is printed."""
    async with (
        started_engine() as engine,
        started_engine("--pool-size", "0") as unprepared,
        started_engine("--ready-sandboxes", "2") as ready,
    ):
        sandbox = await engine.create()
        async with bare_runtime(engine.state_dir / "sandboxes" / sandbox.sandbox_id) as bare:
            yield await creation.cold_create(engine, bare)
            yield await creation.unprepared_create(unprepared, bare)
            yield await creation.ready_create(ready, bare)
            container = await bare.start()
            yield await commands.run_true(sandbox, bare, container, at_once=1, rounds=60)
            yield await commands.run_true(sandbox, bare, container, at_once=40, rounds=10)
            yield await pausing.pause_and_resume(sandbox, bare, container)
            await bare.delete(container)
        yield await pausing.first_output(sandbox)
        await sandbox.kill()
        yield await builds.rebuild(engine)
    async for figure in forks():
        yield figure
    async for figure in density():
        yield figure
    async for figure in queues():
        yield figure


async def main() -> None:
    print_heading()
    async for figure in figures():
        print_figure(figure)


if os.geteuid() != 0:
    sys.exit("The engine and the runtime need root: sudo make bench")
uvloop.run(main())
