import os
import sys
from collections.abc import AsyncIterator

import uvloop

from benchmarks import builds, commands, creation, pausing
from benchmarks.computers.measurement import computers
from benchmarks.density import density
from benchmarks.draining import deadlines
from benchmarks.engine import started_engine
from benchmarks.following import followers
from benchmarks.forking import forks
from benchmarks.git_tasks import tasks
from benchmarks.queueing import queues
from benchmarks.recording import command_recording
from benchmarks.report import Figure, print_figure, print_heading
from benchmarks.rows import rows
from benchmarks.runtime import bare_runtime
from benchmarks.serving import requests
from benchmarks.tooling import tools
from benchmarks.transfer import transfers
from benchmarks.webhooks import webhooks


async def sandboxes() -> AsyncIterator[Figure]:
    """Compare the engine's work with the bare runtime's."""
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


# In the order in which they are measured when none is named.
PARTS = {
    "sandboxes": sandboxes,
    "forks": forks,
    "density": density,
    "queues": queues,
    "requests": requests,
    "commands": command_recording,
    "followers": followers,
    "transfers": transfers,
    "deadlines": deadlines,
    "rows": rows,
    "tools": tools,
    "webhooks": webhooks,
    "tasks": tasks,
    "computers": computers,
}


async def main(names: list[str]) -> None:
    print_heading()
    for name in names or PARTS:
        async for figure in PARTS[name]():
            print_figure(figure)


if unknown := set(sys.argv[1:]) - PARTS.keys():
    sys.exit(f"There is no {', '.join(sorted(unknown))}, but: {', '.join(PARTS)}")
if os.geteuid() != 0:
    sys.exit("The engine and the runtime need root: sudo make bench")
uvloop.run(main(sys.argv[1:]))
