"""Sessions and their sandboxes, on rows."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.browsers.reconciler import SessionReconciler
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession, Job, Sandbox, Tenant
from sandbox_server.domain.computers.browsers import (
    BROWSER_SESSION_PREFIX,
    SessionState,
    new_session_id,
)
from sandbox_server.domain.errors import BrowserNotPrepared
from sandbox_server.domain.events import Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import BROWSER_SESSION, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from tests.server.support.rows import add_sandbox, now

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def tenant_id(sessions):
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name="a", max_running=9, max_queued=9))
    return tenant_id


@pytest.fixture
def add(sessions, tenant_id):
    async def add(sandbox=None, **columns):
        session_id = new_session_id()
        fields = {"session_id": BROWSER_SESSION_PREFIX + session_id, **(sandbox or {})}
        its = await add_sandbox(sessions, tenant_id, **fields)
        row = BrowserSession(
            id=session_id,
            tenant_id=tenant_id,
            key_id=new_id(),
            sandbox_id=its.id,
            **{"timeout": 10 * MINUTE, **columns},
        )
        async with sessions.begin() as session:
            session.add(row)
            await JobRepository(session).due(BROWSER_SESSION, row.id)
        return row

    return add


class Keeper:
    """Notes what it is to do: the sandboxes of these tests are rows."""

    def __init__(self):
        self.prepared = []
        self.kept = []
        self.failure = None

    async def prepare(self, row):
        self.prepared.append(row.id)
        if self.failure is not None:
            raise self.failure

    async def keep(self, row):
        self.kept.append(row.id)


@pytest.fixture
def keeper():
    return Keeper()


@pytest.fixture
def look(sessions, keeper):
    """Do what is due of a session; returns when it is due again."""

    async def look(row):
        job = LeasedJob(id=1, kind=BROWSER_SESSION, subject=row.id, attempts=1, leased_by="a")
        return await SessionReconciler(sessions, keeper).reconcile(job)

    return look


@pytest.fixture
def seen(sessions):
    """Read a session, its sandbox, and the kinds of their jobs."""

    async def seen(row):
        async with sessions() as session:
            kinds = await session.scalars(
                select(Job.kind).where(Job.subject.in_([row.id, row.sandbox_id]))
            )
            found = await BrowserSessionRepository(session).find(row.id)
            return found, await session.get_one(Sandbox, row.sandbox_id), set(kinds)

    return seen


async def test_session__starts_with_its_sandbox(add, look, seen):
    row = await add()
    due = await look(row)
    session, _, kinds = await seen(row)
    assert session.state is SessionState.RUNNING
    assert session.expires_at - session.started_at == 10 * MINUTE
    assert session.connect_by - session.started_at == 5 * MINUTE
    assert due == session.connect_by
    assert kinds == {BROWSER_SESSION}


async def test_session__waits_for_a_queued_sandbox(add, look, seen):
    row = await add({"state": State.QUEUED, "expires_at": None})
    assert await look(row) is not None
    assert (await seen(row))[0].state is SessionState.PENDING


async def test_session__its_timeout_deletes_its_sandbox(add, look, seen):
    row = await add(
        state=SessionState.RUNNING,
        started_at=now() - 10 * MINUTE,
        expires_at=now() - timedelta(seconds=1),
    )
    assert await look(row) is None
    session, sandbox, kinds = await seen(row)
    assert session.state is SessionState.TIMED_OUT
    assert sandbox.target is Target.GONE
    assert TransitionCause.of(sandbox.wish).cause is Cause.EXPIRY
    assert "timeout" in TransitionCause.of(sandbox.wish).reason
    assert kinds == {SANDBOX}


async def test_session__ends_after_its_last_driver_has_left(add, look, seen):
    fields = {"state": SessionState.RUNNING, "expires_at": now() + 10 * MINUTE}
    left = await add(left_at=now() - MINUTE, **fields)
    kept = await add(left_at=now() - MINUTE, keep_alive=True, **fields)
    assert await look(left) is None
    assert await look(kept) is not None
    assert (await seen(left))[0].state is SessionState.COMPLETED
    assert (await seen(kept))[0].state is SessionState.RUNNING


@pytest.mark.parametrize(
    ("sandbox", "state"),
    [
        ({"state": State.FAILED, "ended_at": True}, SessionState.ERROR),
        ({"state": State.STOPPED, "ended_at": True, "cause": Cause.EXPIRY}, SessionState.TIMED_OUT),
        ({"state": State.STOPPED, "ended_at": True}, SessionState.COMPLETED),
        ({"target": Target.GONE}, SessionState.COMPLETED),
        (
            {"state": State.STOPPED, "ended_at": True, "cause": Cause.QUEUE_DEADLINE},
            SessionState.ERROR,
        ),
    ],
)
async def test_session__an_ended_sandbox_ends_it(add, look, seen, sandbox, state):
    cause = TransitionCause(cause=sandbox.pop("cause", Cause.REQUEST), reason="As it was.")
    if sandbox.pop("ended_at", False):
        sandbox |= {"ended_at": now(), "expires_at": None}
    row = await add({**sandbox, "wish": cause.document()})
    assert await look(row) is None
    session, _, kinds = await seen(row)
    assert session.state is state
    assert session.state_reason == "The sandbox of the session ended: As it was."
    assert kinds == set()


async def test_session__a_repeated_job_changes_nothing(add, look, seen):
    row = await add(state=SessionState.RUNNING, expires_at=now() - MINUTE)
    await look(row)
    before, sandbox, _ = await seen(row)
    await look(row)
    again, same, _ = await seen(row)
    assert (again.ended_at, same.wanted) == (before.ended_at, sandbox.wanted)


async def test_session__the_job_of_a_removed_session_is_removed(sessions, look, tenant_id):
    row = BrowserSession(id=new_session_id(), sandbox_id=new_id())
    async with sessions.begin() as session:
        await JobRepository(session).due(BROWSER_SESSION, row.id)
    assert await look(row) is None
    async with sessions() as session:
        assert await JobRepository(session).find_next_due(kinds=[BROWSER_SESSION]) is None


async def test_session__with_settings_starts_once_its_browser_is_prepared(add, look, seen, keeper):
    queued = {"state": State.QUEUED, "expires_at": None}
    waiting = await add(queued, settings={"flags": ["--window-size=900,700"]})
    await look(waiting)
    assert keeper.prepared == []
    row = await add(settings={"flags": ["--window-size=900,700"]})
    due = await look(row)
    session, _, _ = await seen(row)
    assert (session.state, due) == (SessionState.RUNNING, session.connect_by)
    await look(row)
    assert keeper.prepared == [row.id]


async def test_session__ends_if_its_browser_cannot_be_prepared(add, look, seen, keeper):
    keeper.failure = BrowserNotPrepared("The proxies were refused.")
    row = await add(settings={"has_proxies": True})
    assert await look(row) is None
    session, sandbox, _ = await seen(row)
    assert session.state is SessionState.ERROR
    assert session.state_reason == "The browser session could not start: The proxies were refused."
    assert sandbox.target is Target.GONE
    assert keeper.kept == [row.id]
