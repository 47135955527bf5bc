from datetime import timedelta

import pytest
from sqlalchemy import func, select, text

from sandbox_server.admin import retention
from sandbox_server.admin.retention import HOURLY, RetentionJob, RetentionPeriods
from sandbox_server.db.models import (
    ApiKey,
    Command,
    Event,
    IdempotencyKey,
    Job,
    Sandbox,
    Stream,
    Tenant,
    Ticket,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import HOUSEKEEPING, SANDBOX
from sandbox_server.jobs.repository import JobRepository

DAY = timedelta(days=1)
now = func.clock_timestamp()


@pytest.fixture
async def tenant_id(sessions):
    async with sessions.begin() as session:
        tenant = Tenant(id=new_id(), name="default", max_running=1, max_queued=1)
        session.add(tenant)
    return tenant.id


@pytest.fixture
def clean(sessions):
    """Run the retention job once."""

    async def clean(**retention):
        job = LeasedJob(1, HOUSEKEEPING, HOURLY, attempts=1, leased_by="a")
        await RetentionJob(sessions, RetentionPeriods(**retention)).work(job)

    return clean


def ended(tenant_id, *, ago):
    return Sandbox(
        id=new_id(),
        tenant_id=tenant_id,
        template="base",
        state="stopped",
        ended_at=now - ago,
        timeout=DAY,
    )


async def count(sessions, table):
    async with sessions() as session:
        return await session.scalar(select(func.count()).select_from(table))


async def test_retention__ended_sandboxes_are_removed_with_their_jobs(sessions, tenant_id, clean):
    old, young = ended(tenant_id, ago=3 * DAY), ended(tenant_id, ago=DAY)
    living = Sandbox(id=new_id(), tenant_id=tenant_id, template="base", timeout=DAY)
    async with sessions.begin() as session:
        session.add_all([old, young, living])
        for row in (old, young):
            await JobRepository(session).due(SANDBOX, row.id)
    await clean(ended=2 * DAY)
    async with sessions() as session:
        assert set(await session.scalars(select(Sandbox.id))) == {young.id, living.id}
        assert set(await session.scalars(select(Job.subject))) == {young.id}


async def test_retention__old_events_and_idempotency_keys_are_removed(sessions, tenant_id, clean):
    async with sessions.begin() as session:
        for seq, age in enumerate((DAY, 3 * DAY)):
            session.add(Event(tenant_id=tenant_id, seq=seq, type="x", created_at=now - age))
            session.add(
                IdempotencyKey(
                    tenant_id=tenant_id,
                    key=str(seq),
                    digest=b"",
                    resource="sandbox",
                    resource_id=new_id(),
                    created_at=now - age,
                )
            )
    await clean(events=2 * DAY, idempotency=2 * DAY)
    async with sessions() as session:
        assert list(await session.scalars(select(Event.seq))) == [0]
        assert list(await session.scalars(select(IdempotencyKey.key))) == ["0"]


async def test_retention__the_log_records_how_far_it_was_removed(sessions, tenant_id, clean):
    sandbox = Sandbox(id=new_id(), tenant_id=tenant_id, template="base", timeout=DAY)
    async with sessions.begin() as session:
        session.add_all([Stream(tenant_id=tenant_id, next_seq=10), sandbox])
        await session.flush()
        for seq in (4, 7):
            event = Event(tenant_id=tenant_id, seq=seq, type="x", created_at=now - 3 * DAY)
            command = Command(
                id=new_id(),
                tenant_id=tenant_id,
                sandbox_id=sandbox.id,
                cmd="x",
                state="exited",
                last_seq=seq + 1,
                ended_at=now - 3 * DAY,
            )
            session.add_all([event, command])
    await clean(events=2 * DAY, output=2 * DAY)
    async with sessions() as session:
        log = await session.scalar(select(Stream))
    assert (log.removed_seq, log.output_removed_seq) == (7, 8)
    assert log.removed_at is not None
    assert log.output_removed_at is not None


async def test_retention__expired_tickets_are_removed(sessions, tenant_id, clean):
    key = ApiKey(id=new_id(), tenant_id=tenant_id, hash=b"k", prefix="", scopes=["read"])
    async with sessions.begin() as session:
        session.add(key)
        await session.flush()
        for name, left in ((b"over", -DAY), (b"good", DAY)):
            session.add(
                Ticket(
                    hash=name,
                    tenant_id=tenant_id,
                    key_id=key.id,
                    scope="read",
                    expires_at=now + left,
                )
            )
    await clean()
    async with sessions() as session:
        assert list(await session.scalars(select(Ticket.hash))) == [b"good"]


async def test_retention__removal_uses_small_transactions(sessions, tenant_id, clean, monkeypatch):
    monkeypatch.setattr(retention, "_BATCH", 2)
    async with sessions.begin() as session:
        session.add_all([ended(tenant_id, ago=3 * DAY) for _ in range(5)])
    await clean(ended=DAY)
    assert await count(sessions, Sandbox) == 0


async def test_retention__locked_rows_are_left_for_the_next_run(sessions, tenant_id, clean):
    row = ended(tenant_id, ago=3 * DAY)
    async with sessions.begin() as session:
        session.add(row)
    async with sessions.begin() as session:
        await session.execute(text("SELECT 1 FROM sandboxes FOR UPDATE"))
        await clean(ended=DAY)  # without SKIP LOCKED this would wait for the transaction
    assert await count(sessions, Sandbox) == 1
