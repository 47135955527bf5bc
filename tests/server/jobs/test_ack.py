import asyncio
from datetime import timedelta

import pytest

from sandbox_server.domain.jobs import LeaseLost
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.jobs.worker import AckBatcher
from tests.server.jobs.job_actions import (
    KIND,
    LAPSED,
    claim,
    enqueue,
    in_,
    read,
    settle,
    wait_for_a_lock,
)
from tests.server.support.databases import EVERY_POSTGRES

pytestmark = EVERY_POSTGRES

HOUR = timedelta(hours=1)


@pytest.fixture(params=["alone", "together"])
def end_lease(request, sessions):
    """Settle a job in each of the two ways."""
    if request.param == "together":
        return AckBatcher(sessions).ack

    async def alone(job, at):
        await settle(sessions, job, at)

    return alone


async def test_ack__postpones_the_job(sessions, end_lease):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    later = in_(hours=1)

    await end_lease(job, later)

    row = await read(sessions, "one")
    assert (row.run_at, row.leased_by, row.leased_until, row.attempts) == (later, None, None, 0)


async def test_ack__a_request_during_the_lease_is_due_after_it(sessions, end_lease):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    await enqueue(sessions, "one")
    assert not await claim(sessions)

    await end_lease(job, in_(hours=1))

    assert len(await claim(sessions)) == 1


async def test_ack__an_instant_requested_during_the_lease_is_kept(sessions, end_lease):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    wanted = in_(minutes=5)
    await enqueue(sessions, "one", at=wanted)

    await end_lease(job, in_(hours=1))

    assert (await read(sessions, "one")).run_at == wanted


async def test_ack__a_request_that_commits_during_the_ack_is_not_lost(sessions, end_lease):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as intent:
        await JobRepository(intent).due(KIND, "one")
        settling = asyncio.create_task(end_lease(job, in_(hours=1)))
        await wait_for_a_lock(sessions)
    await settling

    assert len(await claim(sessions)) == 1


async def test_ack__a_request_that_waits_for_the_ack_is_not_lost(sessions):
    await enqueue(sessions, "one")
    [job] = await claim(sessions)
    async with sessions.begin() as settling:
        await JobRepository(settling).ack(job, in_(hours=1))
        intent = asyncio.create_task(enqueue(sessions, "one"))
        await wait_for_a_lock(sessions)
    await intent

    assert len(await claim(sessions)) == 1


async def test_ack__a_request_before_the_claim_does_not_run_twice(sessions, end_lease):
    await enqueue(sessions, "one")
    await claim(sessions, lease=LAPSED)
    await enqueue(sessions, "one")
    [job] = await claim(sessions)

    await end_lease(job, None)

    assert not await claim(sessions)


async def test_ack__a_lost_lease_cannot_be_acknowledged(sessions, end_lease):
    await enqueue(sessions, "one")
    [lost] = await claim(sessions, "a", lease=LAPSED)
    [held] = await claim(sessions, "a")

    with pytest.raises(LeaseLost):
        await end_lease(lost, in_(hours=1))

    assert (await read(sessions, "one")).leased_by == held.leased_by


async def test_ack__a_removed_job_is_over(sessions, end_lease):
    await enqueue(sessions, "one", "two")
    removed, kept = await claim(sessions)
    async with sessions.begin() as session:
        await JobRepository(session).remove(removed.kind, removed.subject)

    await asyncio.gather(end_lease(removed, in_(hours=1)), end_lease(kept, in_(hours=1)))

    assert (await read(sessions, kept.subject)).leased_by is None
    async with sessions() as session:
        until_next = await JobRepository(session).find_next_due(kinds=[KIND])
    assert until_next is not None
    assert until_next > timedelta(minutes=59)


async def test_ack__a_locked_row_does_not_block_others(sessions):
    await enqueue(sessions, "locked", "free")
    jobs = {job.subject: job for job in await claim(sessions)}
    settling = AckBatcher(sessions)
    async with sessions.begin() as intent:
        await JobRepository(intent).due(KIND, "locked")
        waiting = asyncio.create_task(settling.ack(jobs["locked"], in_(hours=1)))
        async with asyncio.timeout(30):
            await settling.ack(jobs["free"], in_(hours=1))
        assert not waiting.done()
    await waiting


async def test_ack__jobs_that_finish_together_are_all_acknowledged(sessions):
    await enqueue(sessions, *(str(number) for number in range(50)))
    jobs = await claim(sessions, limit=50)
    settling = AckBatcher(sessions)

    await asyncio.gather(
        *(settling.ack(job, in_(hours=number)) for number, job in enumerate(jobs, 1))
    )

    rows = [await read(sessions, job.subject) for job in jobs]
    assert not any(row.leased_by for row in rows)
    hours = [(row.run_at - rows[0].run_at) / HOUR for row in rows if row.run_at and rows[0].run_at]
    assert [round(hour) for hour in hours] == list(range(50))


async def test_ack__a_cancelled_waiter_does_not_block_others(sessions):
    await enqueue(sessions, "one", "two")
    first, second = await claim(sessions)
    settling = AckBatcher(sessions)
    leader = asyncio.create_task(settling.ack(first, None))
    follower = asyncio.create_task(settling.ack(second, None))
    await asyncio.sleep(0)
    leader.cancel()

    async with asyncio.timeout(30):
        await follower

    assert (await read(sessions, second.subject)).leased_by is None
