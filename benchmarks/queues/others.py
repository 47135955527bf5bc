from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.domain.types import QueueExecutionMode
from pgqueuer.models import Job
from procrastinate import App, PsycopgConnector

from benchmarks.queues.drain import AT_ONCE, Drain
from benchmarks.timing import timed

_KIND = "nothing"


@asynccontextmanager
async def pgqueuer(url: str) -> AsyncIterator[Drain]:
    """Run pgqueuer: jobs are claimed in batches, moved to a log and removed."""
    connection = await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()

    async def drain(jobs: int) -> float:
        queue = PgQueuer(driver)

        @queue.entrypoint(_KIND)
        async def do_nothing(_job: Job) -> None:
            pass

        await queries.enqueue([_KIND] * jobs, [None] * jobs, [0] * jobs)
        elapsed, _ = await timed(queue.run(batch_size=AT_ONCE, mode=QueueExecutionMode.drain))
        return elapsed

    yield drain
    await connection.close()


@asynccontextmanager
async def procrastinate(url: str) -> AsyncIterator[Drain]:
    """Run procrastinate: each job is claimed alone and marked as done."""
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name=_KIND)
    async def do_nothing() -> None:
        pass

    async def drain(jobs: int) -> float:
        await do_nothing.configure().batch_defer_async(*({} for _ in range(jobs)))
        worker = app.run_worker_async(
            concurrency=AT_ONCE, wait=False, listen_notify=False, install_signal_handlers=False
        )
        elapsed, _ = await timed(worker)
        return elapsed

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield drain
