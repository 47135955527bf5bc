import asyncio
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import text

from sandbox_server.jobs.policy import Backoff
from tests.engine.polling import until
from tests.server.jobs.job_actions import claim, enqueue, in_, read
from tests.server.jobs.running_scheduler import HEARING, POLLING, Work, lease, running_scheduler


async def test_scheduler__runs_and_acknowledges_due_jobs(database, sessions):
    later = in_(hours=1)
    work = Work(at=later)
    work.may_finish.set()
    await enqueue(sessions, "one", "two")

    async with running_scheduler(database, work):
        await work.wait_begun(2)

    assert {job.subject for job in work.jobs} == {"one", "two"}
    assert (await read(sessions, "one")).run_at == later


async def test_scheduler__runs_no_more_jobs_than_worker_slots(database, sessions):
    work = Work()
    await enqueue(sessions, *map(str, range(9)))

    async with running_scheduler(database, work, policy=replace(POLLING, slots=3)):
        await work.wait_begun(3)
        work.may_finish.set()
        await work.wait_begun(9)

    assert work.most_at_once == 3


async def test_scheduler__a_finished_job_makes_room_at_once(database, sessions):
    work = Work()
    work.may_finish.set()
    await enqueue(sessions, *map(str, range(9)))

    async with running_scheduler(database, work, policy=replace(HEARING, slots=2)):
        await work.wait_begun(9)


async def test_scheduler__a_due_job_wakes_it(database, sessions):
    work = Work()
    work.may_finish.set()
    async with running_scheduler(database, work, policy=HEARING):
        # The first two may be found by the looks that starting and connecting make it take.
        for number in range(1, 4):
            await enqueue(sessions, str(number))
            await work.wait_begun(number)


async def test_scheduler__sleeps_until_the_next_due_instant(database, sessions):
    work = Work()
    work.may_finish.set()
    await enqueue(sessions, "one", at=in_(seconds=1))

    async with running_scheduler(database, work, policy=HEARING):
        await work.wait_begun(1)


async def test_scheduler__a_request_during_the_work_runs_the_job_again(database, sessions):
    work = Work(at=in_(hours=1))
    await enqueue(sessions, "one")

    async with running_scheduler(database, work, policy=HEARING):
        await work.wait_begun(1)
        await enqueue(sessions, "one")
        work.may_finish.set()
        await work.wait_begun(2)


async def test_scheduler__a_long_job_keeps_its_lease(database, sessions):
    work = Work()
    await enqueue(sessions, "one")
    policy = replace(POLLING, lease=timedelta(seconds=3))

    async with running_scheduler(database, work, policy=policy):
        await work.wait_begun(1)
        leased_until = (await read(sessions, "one")).leased_until

        async def extended_past_the_first_lease():
            async with sessions() as session:
                now = await session.scalar(text("SELECT clock_timestamp()"))
            return now > leased_until and (await read(sessions, "one")).leased_until > now

        await until(extended_past_the_first_lease, timeout=60)
        assert not await claim(sessions, "b")
        work.may_finish.set()
    assert len(work.jobs) == 1


async def test_scheduler__a_failing_job_is_retried_until_it_is_dead(database, sessions):
    attempts = []

    async def break_down(job):
        attempts.append(job.attempts)
        raise RuntimeError("no way")

    policy = replace(POLLING, max_attempts=3, backoff=Backoff(first=timedelta(milliseconds=10)))
    await enqueue(sessions, "one")

    async with running_scheduler(database, break_down, policy=policy):

        async def dead():
            return (await read(sessions, "one")).dead_at

        await until(dead, timeout=60)
    assert attempts == [1, 2, 3]
    assert (await read(sessions, "one")).last_error == "RuntimeError: no way"


async def test_scheduler__a_hanging_job_is_cancelled(database, sessions):
    work = Work()
    policy = replace(POLLING, longest_run=timedelta(milliseconds=50), max_attempts=1)
    await enqueue(sessions, "one")

    async with running_scheduler(database, work, policy=policy):

        async def dead():
            return (await read(sessions, "one")).dead_at

        await until(dead, timeout=60)


async def test_scheduler__a_job_that_kills_its_workers_becomes_dead(database, sessions):
    await enqueue(sessions, "one")
    for _ in range(POLLING.max_attempts):
        assert await claim(sessions, "crashes", lease=timedelta())
    work = Work()

    async with running_scheduler(database, work):

        async def dead():
            return (await read(sessions, "one")).dead_at

        await until(dead, timeout=60)
    assert not work.jobs


async def test_scheduler__the_server_that_commits_a_job_runs_it(database, sessions):
    work = Work(at=in_(hours=1))
    work.may_finish.set()
    async with running_scheduler(database, work) as scheduler:
        job = await lease(scheduler, sessions)

        assert await scheduler.work(job) is None

    assert [job.subject for job in work.jobs] == ["one"]
    assert (await read(sessions, "one")).leased_by is None


async def test_scheduler__the_committer_gets_the_error(database, sessions):
    async def break_down(job):
        raise RuntimeError("no way")

    async with running_scheduler(database, break_down) as scheduler:
        job = await lease(scheduler, sessions)

        assert str(await scheduler.work(job)) == "no way"

    assert (await read(sessions, "one")).run_at


async def test_scheduler__a_disconnected_caller_leaves_the_job_to_others(database, sessions):
    work = Work()
    async with running_scheduler(database, work) as scheduler:
        job = await lease(scheduler, sessions)
        request = asyncio.create_task(scheduler.work(job))
        await work.wait_begun(1)
        request.cancel()

        await work.wait_begun(2)
        work.may_finish.set()
