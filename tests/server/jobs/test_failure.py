import pytest

from sandbox_server.domain.errors import JobNotFound
from sandbox_server.jobs.repository import JobRepository
from tests.server.jobs.job_actions import MINUTE, claim, enqueue, fail, read


async def _dead(sessions):
    async with sessions() as session:
        return await JobRepository(session).list_dead(limit=10)


async def _retry(sessions, job_id):
    async with sessions.begin() as session:
        await JobRepository(session).retry(job_id)


async def _die(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job, max_attempts=1)
    return job


async def test_a_failed_job_is_due_after_a_while(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)

    await fail(sessions, job)

    row = await read(sessions, "one")
    assert row.leased_by is None
    assert row.attempts == 1
    assert row.last_error == "it broke"
    assert row.run_at is not None
    assert row.run_at > row.created_at
    assert not await claim(sessions)


async def test_a_job_is_dead_after_its_last_attempt_and_says_why(sessions):
    job = await _die(sessions)

    assert not await claim(sessions)
    [dead] = await _dead(sessions)
    assert (dead.id, dead.subject, dead.last_error) == (job.id, "one", "it broke")


async def test_a_dead_job_can_be_retried(sessions):
    job = await _die(sessions)

    await _retry(sessions, job.id)

    assert not await _dead(sessions)
    [again] = await claim(sessions)
    assert again.attempts == 1


async def test_a_failing_job_can_be_retried_before_its_time(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job)

    await _retry(sessions, job.id)

    assert len(await claim(sessions)) == 1


async def test_a_job_that_is_leased_is_retried_after_that(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)

    await _retry(sessions, job.id)
    assert not await claim(sessions)
    await fail(sessions, job)

    assert len(await claim(sessions)) == 1


async def test_what_does_not_exist_cannot_be_retried(sessions):
    with pytest.raises(JobNotFound):
        await _retry(sessions, 1)


async def test_what_was_wanted_during_the_last_attempt_is_attempted(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await enqueue(sessions, "one")

    await fail(sessions, job, max_attempts=1)

    assert not await _dead(sessions)
    assert len(await claim(sessions)) == 1


async def test_an_error_of_any_text_is_kept(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).fail(
            job, error="a\0b\ud800" + "c" * 10_000, delay=MINUTE, max_attempts=1
        )

    [dead] = await _dead(sessions)
    assert dead.last_error.startswith("ab?ccc")


async def test_a_released_job_is_due_at_once_as_if_never_taken(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).release(job)

    [again] = await claim(sessions)
    assert again.attempts == 1
