import asyncio

from sandbox_server.jobs.repository import JobRepository
from tests.server.jobs.job_actions import (
    KIND,
    LAPSED,
    MINUTE,
    claim,
    enqueue,
    fail,
    in_,
    settle,
    wait_for_a_lock,
)


async def _lease(sessions, worker="a", lease=MINUTE):
    async with sessions.begin() as session:
        return await JobRepository(session).lease(KIND, "one", worker=worker, lease=lease)


async def test_lease__a_new_job_is_leased_with_its_commit(sessions):
    job = await _lease(sessions)
    assert job is not None
    assert not await claim(sessions, "b")

    await settle(sessions, job)

    assert not await claim(sessions, "b")


async def test_lease__a_rolled_back_request_leaves_no_job(sessions):
    async with sessions() as session:
        await JobRepository(session).lease(KIND, "one", worker="a", lease=LAPSED)
        await session.rollback()

    assert not await claim(sessions, "b")


async def test_lease__another_worker_finishes_after_its_expiry(sessions):
    await _lease(sessions, lease=LAPSED)

    assert len(await claim(sessions, "b")) == 1


async def test_lease__a_job_that_is_not_due_can_be_leased(sessions):
    await enqueue(sessions, "one", at=in_(hours=1))

    assert await _lease(sessions, lease=LAPSED)

    assert len(await claim(sessions, "b")) == 1


async def test_lease__a_job_held_by_another_is_due_afterwards(sessions):
    await enqueue(sessions, "one")
    [held] = await claim(sessions, "b")

    assert await _lease(sessions) is None

    await settle(sessions, held, in_(hours=1))
    assert len(await claim(sessions, "a")) == 1


async def test_lease__of_two_concurrent_requests_one_gets_it_and_the_other_is_not_lost(sessions):
    async with sessions.begin() as session:
        job = await JobRepository(session).lease(KIND, "one", worker="a", lease=MINUTE)
        assert job is not None
        other = asyncio.create_task(_lease(sessions, "b"))
        await wait_for_a_lock(sessions)
    assert await other is None

    await settle(sessions, job, in_(hours=1))

    assert len(await claim(sessions)) == 1


async def test_lease__an_expired_one_can_be_taken_over(sessions):
    await _lease(sessions, "a", lease=LAPSED)

    assert await _lease(sessions, "b")


async def test_lease__revives_a_dead_job(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job, max_attempts=1)

    revived = await _lease(sessions, lease=LAPSED)

    assert revived is not None
    assert revived.attempts == 1
    assert len(await claim(sessions, "b")) == 1
