import asyncio

from sandbox_server.jobs.repository import JobRepository
from tests.server.jobs.job_actions import KIND, LAPSED, MINUTE, claim, claim_in, enqueue, in_
from tests.server.support.databases import EVERY_POSTGRES

pytestmark = EVERY_POSTGRES


async def test_claim__skips_rows_locked_by_another_claim(sessions):
    await enqueue(sessions, "one", "two")
    async with sessions.begin() as first, sessions.begin() as second:
        held = await claim_in(first, "a", limit=1)
        async with asyncio.timeout(30):  # plain FOR UPDATE would wait for `first` for ever
            got = await claim_in(second, "b", limit=2)
    assert len(held) == len(got) == 1
    assert held[0].id != got[0].id


async def test_claim__takes_the_longest_due_first(sessions):
    await enqueue(sessions, "late", at=in_(seconds=-1))
    await enqueue(sessions, "early", at=in_(hours=-1))

    [job] = await claim(sessions, limit=1)
    assert job.subject == "early"


async def test_claim__skips_leased_jobs(sessions):
    await enqueue(sessions, "one")
    await claim(sessions, "a")

    assert not await claim(sessions, "b")


async def test_claim__takes_jobs_with_an_expired_lease(sessions):
    await enqueue(sessions, "one")
    [first] = await claim(sessions, "a", lease=LAPSED)

    [second] = await claim(sessions, "b")

    assert second.id == first.id
    assert second.attempts == 2


async def test_claim__skips_extended_leases(sessions):
    await enqueue(sessions, "one", "two")
    jobs = await claim(sessions, "a", lease=LAPSED)
    async with sessions.begin() as session:
        await JobRepository(session).extend(jobs, lease=MINUTE)

    assert not await claim(sessions, "b")


async def test_lease__one_taken_over_is_not_extended(sessions):
    await enqueue(sessions, "one")
    lost = await claim(sessions, "a", lease=LAPSED)
    await claim(sessions, "b", lease=LAPSED)
    async with sessions.begin() as session:
        await JobRepository(session).extend(lost, lease=MINUTE)

    assert len(await claim(sessions, "c")) == 1


async def test_lease__a_locked_row_does_not_block_the_extension_of_others(sessions):
    await enqueue(sessions, "locked", "free")
    jobs = await claim(sessions, "a", lease=LAPSED)
    async with sessions.begin() as holder:
        await JobRepository(holder).due(KIND, "locked")
        async with sessions.begin() as session, asyncio.timeout(30):
            await JobRepository(session).extend(jobs, lease=MINUTE)

    assert [job.subject for job in await claim(sessions, "b")] == ["locked"]


async def test_claim__takes_only_the_requested_kinds(sessions):
    async with sessions.begin() as session:
        await JobRepository(session).due("of a newer server", "one")

    assert not await claim(sessions)
