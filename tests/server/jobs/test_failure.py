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


async def test_failure__the_job_is_retried_after_a_delay(sessions):
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


async def test_failure__the_job_is_dead_after_its_last_attempt_with_a_reason(sessions):
    job = await _die(sessions)

    assert not await claim(sessions)
    [dead] = await _dead(sessions)
    assert (dead.id, dead.subject, dead.last_error) == (job.id, "one", "it broke")


async def test_retry__revives_a_dead_job(sessions):
    job = await _die(sessions)

    await _retry(sessions, job.id)

    assert not await _dead(sessions)
    [again] = await claim(sessions)
    assert again.attempts == 1


async def test_retry__runs_a_failing_job_early(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job)

    await _retry(sessions, job.id)

    assert len(await claim(sessions)) == 1


async def test_retry__a_leased_job_runs_again_afterwards(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)

    await _retry(sessions, job.id)
    assert not await claim(sessions)
    await fail(sessions, job)

    assert len(await claim(sessions)) == 1


async def test_retry__an_unknown_job_is_not_found(sessions):
    with pytest.raises(JobNotFound):
        await _retry(sessions, 1)


async def test_failure__a_request_during_the_last_attempt_is_attempted(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await enqueue(sessions, "one")

    await fail(sessions, job, max_attempts=1)

    assert not await _dead(sessions)
    assert len(await claim(sessions)) == 1


async def test_failure__any_error_text_is_stored(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).fail(
            job, error="a\0b\ud800" + "c" * 10_000, delay=MINUTE, max_attempts=1
        )

    [dead] = await _dead(sessions)
    assert dead.last_error.startswith("ab?ccc")


async def test_release__the_job_is_due_at_once_without_a_counted_attempt(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).release(job)

    [again] = await claim(sessions)
    assert again.attempts == 1
