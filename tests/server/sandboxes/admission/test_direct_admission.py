"""Sandboxes that get their place as they are written down."""

import asyncio

import pytest

from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.repositories.direct_admission import (
    DirectAdmissionRepository,
    set_defaults,
)
from tests.server.jobs.job_actions import wait_for_a_lock
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.sandbox_rows import (
    add,
    backend,
    due_subjects,
    read,
    sandbox,
    states,
    tenant,
)

pytestmark = EVERY_POSTGRES


@pytest.fixture
def let_in(sessions):
    """Insert a new sandbox; returns it if it starts at once, or None."""

    async def act(session, *candidates):
        _, _, now = await DirectAdmissionRepository(session).find_tenant("t")
        row = sandbox(
            candidates=list(candidates),
            labels={},
            resources={},
            network={},
            volumes={},
            auto_resume=True,
            priority=0,
        )
        set_defaults(row, now, queue_timeout=None)
        await Admission(sessions, by="me").add(session, row, now, quota_free=True)
        return row if row.state is State.STARTING else None

    return act


async def test_direct_admission__returns_the_committed_row(sessions, let_in):
    await add(sessions, tenant(), backend())

    async with sessions.begin() as session:
        row = await let_in(session, "local")

    [kept] = await read(sessions, row)
    columns = [column.key for column in type(row).__mapper__.column_attrs]
    assert {name: getattr(kept, name) for name in columns} == {
        name: getattr(row, name) for name in columns
    }
    assert (kept.state, kept.backend, kept.generation) == (State.STARTING, "local", 1)


async def test_direct_admission__takes_the_preferred_backend_with_a_free_slot(sessions, let_in):
    full, drained = backend("full", capacity=0), backend("drained", drained=True)
    await add(sessions, tenant(), full, drained, backend())

    async with sessions.begin() as session:
        row = await let_in(session, "full", "drained", "local")
        assert await let_in(session, "full", "drained") is None

    assert row.backend == "local"


async def test_direct_admission__creates_at_two_backends_do_not_exceed_the_quota(sessions, let_in):
    await add(sessions, tenant(max_running=1), backend(), backend("other"))

    async def arrive_second():
        async with sessions.begin() as session:
            return await let_in(session, "other")

    async with sessions.begin() as first:
        assert await let_in(first, "local")
        second = asyncio.create_task(arrive_second())
        await wait_for_a_lock(sessions)

    assert await second is None
    assert await due_subjects(sessions, ADMISSION) == ["other"]


async def test_direct_admission__never_overtakes_a_queued_sandbox(sessions, let_in):
    waiting = sandbox()
    await add(sessions, tenant(), backend())

    async with sessions.begin() as session:
        _, quota_free, _ = await DirectAdmissionRepository(session).find_tenant("t")
        await add(sessions, waiting)
        assert quota_free
        assert await let_in(session, "local") is None

    assert await due_subjects(sessions, ADMISSION) == ["local"]
    assert await states(sessions, waiting) == [State.QUEUED]
