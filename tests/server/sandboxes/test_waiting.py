import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from sandbox_server.db.notifications import Notifications
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.waiting import Waiting
from tests.server.support.sandbox_rows import add, sandbox, tenant

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def changes(database):
    """Hear of changes as a server does."""
    notifications = Notifications(database)
    changes = Changes(notifications)
    up = asyncio.Event()
    notifications.listen("any", lambda _: up.set())
    hearing = asyncio.create_task(notifications.run())
    await up.wait()
    yield changes
    hearing.cancel()
    with suppress(asyncio.CancelledError):
        await hearing


@pytest.fixture
async def row(sessions):
    row = sandbox(State.QUEUED, candidates=["local"])
    await add(sessions, tenant(), row)
    return row


async def start(sessions, row, *, by=""):
    async with sessions.begin() as session:
        repository = SandboxRepository(session)
        changed, _ = await repository.lock(row.id)
        changed.state = State.RUNNING
        await repository.announce(row.id, by=by)
    return changed


async def test_wait__sees_commits_of_any_server(changes, sessions, row):
    waiting = Waiting(sessions, changes)
    with waiting.watch(row.id, poll_every=MINUTE) as watch:
        await start(sessions, row, by="another")
        assert (await watch.until_settled(row, wait=MINUTE)).state is State.RUNNING


async def test_wait__ignores_notifications_of_its_own_published_commits(changes, sessions, row):
    waiting = Waiting(sessions, changes)
    with waiting.watch(row.id, poll_every=MINUTE) as watch, changes.follow(row.id) as other:
        with changes.follow("fence") as fence:
            told = await start(sessions, row, by=changes.name)
            changes.publish(told)
            assert await watch.until_settled(row, wait=MINUTE) is told
            assert await other.wait(longest=MINUTE) is told
            async with sessions.begin() as session:
                await SandboxRepository(session).announce("fence")
            await fence.wait(longest=MINUTE)
        assert not other._changed.is_set()


async def test_wait__polls_without_notifications(changes, sessions, row):
    waiting = Waiting(sessions, changes)
    with waiting.watch(row.id, poll_every=timedelta(milliseconds=20)) as watch:
        await start(sessions, row, by=changes.name)
        assert (await watch.until_settled(row, wait=MINUTE)).state is State.RUNNING


async def test_wait__returns_the_current_row_at_its_timeout(changes, sessions, row):
    with Waiting(sessions, changes).watch(row.id) as watch:
        waited = await watch.until_settled(row, wait=timedelta(milliseconds=1))
    assert waited.state is State.QUEUED


async def test_wait__forgets_followers_that_left(changes, row):
    with changes.follow(row.id), changes.follow(row.id):
        assert changes._waiting
    assert not changes._waiting
