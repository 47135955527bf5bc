"""When activity is written down: seldom, and by the database's clock alone."""

from datetime import timedelta

import pytest
from sqlalchemy import func, update

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.domain.ids import new_id
from sandbox_server.sandboxes.repositories.activity import ActivityRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from tests.server.support.rows import add_sandbox

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
            await ActivityRepository(session).note([row.id], at_most_every=30 * SECOND)
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
async def test_activity__is_written_rarely_but_exactly_for_a_short_idle_timeout(
    touched, idle_timeout, since, news
):
    assert await touched(since, idle_timeout=idle_timeout) is news


@pytest.mark.parametrize(
    ("state", "target", "news"),
    [
        ("starting", "running", False),
        ("running", "paused", False),
        ("pausing", "paused", False),
        ("paused", "paused", False),
        # For its provider's maximum alone: what goes on in it goes on afterwards.
        ("pausing", "running", True),
        ("paused", "running", True),
        ("resuming", "running", True),
        ("running", "gone", False),
    ],
)
async def test_activity__counts_only_for_sandboxes_to_be_kept_running(touched, state, target, news):
    expiry = {"expires_at": None} if state == "paused" else {}
    assert await touched(DAY, state=state, target=target, **expiry) is news


async def test_activity__returns_the_shortest_idle_timeout(sessions, tenant_id):
    async with sessions.begin() as session:
        repository = ActivityRepository(session)
        rows = [
            await add_sandbox(sessions, tenant_id, state="running", idle_timeout=idle_timeout)
            for idle_timeout in (None, DAY, MINUTE)
        ]
        every = [row.id for row in rows]
        assert await repository.note(every, at_most_every=SECOND) == MINUTE
        assert await repository.note(every[:1], at_most_every=SECOND) is None
        assert await repository.note([], at_most_every=SECOND) is None
