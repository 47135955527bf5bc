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


async def test_a_new_job_is_leased_from_the_moment_it_commits(sessions):
    job = await _lease(sessions)
    assert job is not None
    assert not await claim(sessions, "b")

    await settle(sessions, job)

    assert not await claim(sessions, "b")


async def test_an_intent_that_is_rolled_back_leaves_no_job(sessions):
    async with sessions() as session:
        await JobRepository(session).lease(KIND, "one", worker="a", lease=LAPSED)
        await session.rollback()

    assert not await claim(sessions, "b")


async def test_another_finishes_what_its_worker_did_not(sessions):
    await _lease(sessions, lease=LAPSED)

    assert len(await claim(sessions, "b")) == 1


async def test_a_job_that_is_not_yet_due_can_be_leased(sessions):
    await enqueue(sessions, "one", at=in_(hours=1))

    assert await _lease(sessions, lease=LAPSED)

    assert len(await claim(sessions, "b")) == 1


async def test_a_job_that_another_holds_is_due_again_once_that_is_done(sessions):
    await enqueue(sessions, "one")
    [held] = await claim(sessions, "b")

    assert await _lease(sessions) is None

    await settle(sessions, held, in_(hours=1))
    assert len(await claim(sessions, "a")) == 1


async def test_of_two_intents_at_once_one_gets_the_lease_and_the_other_is_not_lost(sessions):
    async with sessions.begin() as session:
        job = await JobRepository(session).lease(KIND, "one", worker="a", lease=MINUTE)
        assert job is not None
        other = asyncio.create_task(_lease(sessions, "b"))
        await wait_for_a_lock(sessions)
    assert await other is None

    await settle(sessions, job, in_(hours=1))

    assert len(await claim(sessions)) == 1


async def test_a_lapsed_lease_can_be_taken_over(sessions):
    await _lease(sessions, "a", lease=LAPSED)

    assert await _lease(sessions, "b")


async def test_leasing_revives_a_dead_job(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job, max_attempts=1)

    revived = await _lease(sessions, lease=LAPSED)

    assert revived is not None
    assert revived.attempts == 1
    assert len(await claim(sessions, "b")) == 1
