import asyncio
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager

from sqlalchemy import text

from tests.engine.polling import until
from tests.server.jobs.job_actions import claim, enqueue, read
from tests.server.jobs.running_scheduler import Work, running_scheduler


@asynccontextmanager
async def _stuck_worker(database_url):
    """Run another process that takes jobs and keeps them."""
    module = "tests.server.jobs.stuck_worker"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, database_url, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_crash__jobs_of_a_killed_process_are_carried_out_by_another(
    database, database_url, sessions
):
    work = Work()
    work.may_finish.set()
    await enqueue(sessions, "one", "two")
    async with _stuck_worker(database_url) as process:
        async with asyncio.timeout(60):
            begun = {await process.stdout.readline(), await process.stdout.readline()}
        assert begun == {b"one\n", b"two\n"}
        process.kill()
        await process.wait()

    async with running_scheduler(database, work):
        await work.wait_begun(2)

    assert {job.subject: job.attempts for job in work.jobs} == {"one": 2, "two": 2}


async def test_crash__jobs_of_a_live_process_are_left_alone(database_url, sessions):
    await enqueue(sessions, "one")
    async with _stuck_worker(database_url) as process:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"one\n"
        first = (await read(sessions, "one")).leased_until

        async def first_lease_is_over():
            async with sessions() as session:
                return first < await session.scalar(text("SELECT clock_timestamp()"))

        await until(first_lease_is_over, timeout=60)
        assert not await claim(sessions, "b")
