import asyncio
from dataclasses import replace
from datetime import timedelta

from tests.server.jobs.job_actions import claim, enqueue, read
from tests.server.jobs.running_scheduler import POLLING, Work, lease, running_scheduler


async def test_a_stop_finishes_what_is_under_way(database, sessions):
    work = Work()
    await enqueue(sessions, "one")
    async with running_scheduler(database, work) as scheduler:
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()

    row = await read(sessions, "one")
    assert (row.leased_by, row.run_at) == (None, None)


async def test_a_stop_takes_nothing_new(database, sessions):
    work = Work()
    await enqueue(sessions, "one", "two")
    async with running_scheduler(database, work, policy=replace(POLLING, slots=1)) as scheduler:
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()

    assert len(work.jobs) == 1


async def test_what_does_not_finish_in_time_is_given_to_others(database, sessions):
    work = Work()
    await enqueue(sessions, "one", "two")
    async with running_scheduler(
        database, work, policy=replace(POLLING, grace=timedelta(milliseconds=10))
    ):
        await work.wait_begun(2)

    assert work.under_way == 0
    assert [job.attempts for job in await claim(sessions, "b")] == [1, 1]


async def test_a_lease_for_a_caller_is_finished_too(database, sessions):
    work = Work()
    async with running_scheduler(database, work) as scheduler:
        job = await lease(scheduler, sessions)
        request = asyncio.create_task(scheduler.work(job))
        await work.wait_begun(1)
        scheduler.stop()
        work.may_finish.set()
    assert await request is None
