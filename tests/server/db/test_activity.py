"""When activity is written down: seldom, and by the database's clock alone."""

from datetime import timedelta

import pytest
from sqlalchemy import func, update

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.db.sandboxes import SandboxRepository
from sandbox_server.domain.ids import new_id
from tests.server.api.rows import add_sandbox

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture
async def tenant_id(sessions):
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name="t", max_running=1, max_queued=1))
    return tenant_id


@pytest.fixture
async def touched(sessions, tenant_id):
    """Say whether activity is news for a sandbox in which something happened so long ago."""

    async def touch(since, **columns):
        row = await add_sandbox(sessions, tenant_id, **columns)
        async with sessions.begin() as session:
            before = await session.scalar(
                update(Sandbox)
                .where(Sandbox.id == row.id)
                .values(last_activity_at=None if since is None else func.clock_timestamp() - since)
                .returning(Sandbox.last_activity_at)
            )
        async with sessions.begin() as session:
            await SandboxRepository(session).touch(row.id, at_most_every=30 * SECOND)
        async with sessions() as session:
            after = (
                await SandboxRepository(session).get(row.id, tenant_id=tenant_id)
            ).last_activity_at
        return after != before

    return touch


@pytest.mark.parametrize(
    ("idle_timeout", "since", "news"),
    [
        (None, SECOND, False),
        (None, 31 * SECOND, True),
        (30 * MINUTE, SECOND, False),
        (MINUTE, 7 * SECOND, True),
        (DAY, 31 * SECOND, True),
        (None, None, True),
    ],
)
async def test_activity_is_written_seldom_but_for_a_short_idle_timeout_exactly(
    touched, idle_timeout, since, news
):
    assert await touched(since, idle_timeout=idle_timeout) is news


async def test_activity_in_what_does_not_run_is_none(touched):
    assert not await touched(DAY, state="starting")
