import asyncio
from dataclasses import replace
from datetime import timedelta

from tests.server.jobs.job_actions import claim, enqueue, read
from tests.server.jobs.running_scheduler import POLLING, Work, lease, running_scheduler


async def test_scheduler_stop__finishes_running_jobs(database, sessions):
    work = Work()
    await enqueue(sessions, "one")
    async with running_scheduler(database, work) as scheduler:
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()

    row = await read(sessions, "one")
    assert (row.leased_by, row.run_at) == (None, None)


async def test_scheduler_stop__takes_no_new_jobs(database, sessions):
    work = Work()
    await enqueue(sessions, "one", "two")
    async with running_scheduler(database, work, policy=replace(POLLING, slots=1)) as scheduler:
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()

    assert len(work.jobs) == 1


async def test_scheduler_stop__releases_jobs_that_do_not_finish_in_time(database, sessions):
    work = Work()
    await enqueue(sessions, "one", "two")
    async with running_scheduler(
        database, work, policy=replace(POLLING, grace=timedelta(milliseconds=10))
    ):
        await work.wait_begun(2)

    assert work.under_way == 0
    assert [job.attempts for job in await claim(sessions, "b")] == [1, 1]


async def test_scheduler_stop__finishes_a_job_leased_for_a_caller(database, sessions):
    work = Work()
    async with running_scheduler(database, work) as scheduler:
        job = await lease(scheduler, sessions)
        request = asyncio.create_task(scheduler.work(job))
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()
    assert await request is None
