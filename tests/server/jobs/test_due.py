from sqlalchemy import func, select

from sandbox_server.db.models import Job
from sandbox_server.jobs.repository import JobRepository
from tests.server.jobs.job_actions import KIND, claim, enqueue, fail, in_, read, settle


async def test_job__a_subject_has_one_per_kind(sessions):
    await enqueue(sessions, "one", "one")
    await enqueue(sessions, "one")

    async with sessions() as session:
        assert await session.scalar(select(func.count()).select_from(Job)) == 1


async def test_job__a_later_instant_does_not_delay_an_earlier_one(sessions):
    early = in_(minutes=1)
    await enqueue(sessions, "one", at=early)
    await enqueue(sessions, "one", at=in_(hours=1))

    assert (await read(sessions, "one")).run_at == early


async def test_job__an_earlier_instant_replaces_a_later_one(sessions):
    await enqueue(sessions, "one", at=in_(hours=1))
    await enqueue(sessions, "one")

    assert [job.subject for job in await claim(sessions)] == ["one"]


async def test_job__one_due_later_is_not_claimed(sessions):
    await enqueue(sessions, "one", at=in_(hours=1))

    assert not await claim(sessions)


async def test_job__a_finished_one_is_due_on_request(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await settle(sessions, job, None)
    assert not await claim(sessions)

    await enqueue(sessions, "one")

    assert len(await claim(sessions)) == 1


async def test_job__a_dead_one_revives_on_request(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await fail(sessions, job, max_attempts=1)
    assert not await claim(sessions)

    await enqueue(sessions, "one")

    [again] = await claim(sessions)
    assert again.attempts == 1


async def test_job__a_removed_one_can_be_acknowledged_by_its_holder(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).remove(KIND, "one")

    await settle(sessions, job, in_(hours=1))

    async with sessions() as session:
        assert not await session.scalar(select(func.count()).select_from(Job))


async def test_job__the_database_tells_the_time_until_the_next(sessions):
    await enqueue(sessions, "late", at=in_(hours=2))
    await enqueue(sessions, "early", at=in_(hours=1))
    await enqueue(sessions, "held")
    await claim(sessions)

    async with sessions() as session:
        until = await JobRepository(session).find_next_due(kinds=[KIND])
        assert await JobRepository(session).find_next_due(kinds=["other"]) is None
    assert until is not None
    assert 0.9 < until.total_seconds() / 3600 < 1.1
