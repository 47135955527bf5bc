from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import event

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.state import OnTimeout, State, Target
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.queue.view import describe_queue, describe_queues
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.sandbox_rows import HOUR, add, backend, now, sandbox, tenant

pytestmark = EVERY_POSTGRES

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
QUEUED, RUNNING, PAUSED = State.QUEUED, State.RUNNING, State.PAUSED


@pytest.fixture
def view(sessions):
    async def look(row):
        async with sessions() as session:
            return await describe_queue(session, await session.get_one(Sandbox, row.id))

    return look


def ends_in(minutes, **columns):
    return sandbox(RUNNING, expires_at=now() + minutes * MINUTE, **columns)


def rounded(estimate):
    return None if estimate is None else round(estimate / MINUTE)


async def test_queue_view__a_sandbox_that_is_not_queued_has_no_position_and_needs_no_query(
    database, sessions
):
    rows = [sandbox(RUNNING), sandbox(PAUSED), sandbox(QUEUED, target=Target.GONE)]
    statements = []
    event.listen(
        database.sync_engine, "before_cursor_execute", lambda *said: statements.append(said)
    )
    async with sessions() as session:
        assert await describe_queues(session, rows) == {}
    assert statements == []


async def test_queue_view__positions_start_with_the_next(sessions, view):
    rows = [sandbox(since=now() - number * MINUTE) for number in range(3, 0, -1)]
    await add(sessions, tenant(), backend(capacity=0), *rows)

    assert [(await view(row)).position for row in rows] == [1, 2, 3]


async def test_queue_view__explains_which_sandboxes_take_the_slots(sessions, view):
    row = sandbox()
    await add(sessions, tenant(), backend(capacity=2), sandbox(RUNNING), sandbox(RUNNING), row)

    assert (await view(row)).reason == "All 2 slots at local are in use."


async def test_queue_view__explains_the_slots_kept_by_paused_sandboxes(sessions, view):
    row = sandbox()
    keeping = backend(capacity=3, paused_takes_place=True)
    await add(sessions, tenant(), keeping, sandbox(RUNNING), sandbox(PAUSED), sandbox(PAUSED), row)

    assert (
        await view(row)
    ).reason == "All 3 slots at local are in use: 1 running, 2 paused that keep their memory."


async def test_queue_view__explains_a_tenant_at_its_quota(sessions, view):
    rows = [sandbox(), sandbox()]
    running = [ends_in(20, candidates=["other"]), ends_in(10, candidates=["other"])]
    await add(sessions, tenant(max_running=2), backend(), backend("other"), *running, *rows)

    first, second = await view(rows[0]), await view(rows[1])

    assert first.reason == "Tenant T is running its maximum of 2 sandboxes."
    assert (rounded(first.estimate), rounded(second.estimate)) == (10, 20)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"drained": True}, "Backend local is drained."),
        (
            {"state": "down", "failing_since": now().replace(hour=12, minute=1, second=5)},
            "Backend local does not answer since ",
        ),
        ({"state": "down"}, "Backend local does not answer."),
        ({"busy_until": now() + HOUR}, "Backend local is busy; the next attempt is at"),
        ({}, "A slot at local is about to be assigned."),
    ],
    ids=["drained", "down", "down for ever", "busy", "none"],
)
async def test_queue_view__explains_the_trouble_of_a_backend(sessions, view, trouble, reason):
    row = sandbox(candidates=["local", "spare"])
    await add(sessions, tenant(), backend(**trouble), backend("spare", capacity=0), row)

    told = (await view(row)).reason

    assert told.startswith(reason)
    assert told.endswith("All 0 slots at spare are in use.")


async def test_queue_view__estimates_when_enough_slots_are_free(sessions, view):
    rows = [sandbox(since=now() - MINUTE), sandbox(), sandbox(candidates=["local", "spare"])]
    idle = ends_in(60, idle_timeout=20 * MINUTE, last_activity_at=now() - 5 * MINUTE)
    await add(sessions, tenant(), backend(capacity=2), backend("spare", capacity=0), *rows)
    await add(sessions, ends_in(30), idle)

    views = [await view(row) for row in rows]

    assert [view.position for view in views] == [1, 2, 3]
    assert [rounded(view.estimate) for view in views] == [15, 30, None]


async def test_queue_view__a_pause_frees_no_slot_where_paused_sandboxes_keep_theirs(sessions, view):
    rows = [sandbox(since=now() - MINUTE), sandbox(), sandbox()]
    kept = sandbox(PAUSED, retain_until=now() + 90 * MINUTE)
    deleted = ends_in(40, on_timeout=OnTimeout.DELETE)
    await add(sessions, tenant(), backend(capacity=3, paused_takes_place=True), *rows)
    await add(sessions, ends_in(30), deleted, kept)

    assert [rounded((await view(row)).estimate) for row in rows] == [40, 90, None]


async def test_queue_view__gives_no_estimate_for_a_backend_that_is_down(sessions, view):
    row = sandbox()
    await add(sessions, tenant(), backend(state="down"), ends_in(30), row)

    assert (await view(row)).estimate is None


async def test_queue_view__estimates_a_busy_backend_from_its_next_attempt(sessions, view):
    row = sandbox()
    await add(sessions, tenant(), backend(busy_until=now() + 5 * MINUTE), row)

    assert rounded((await view(row)).estimate) == 5


async def test_queue_view__a_resume_in_a_kept_slot_waits_for_nothing(sessions, view):
    row = sandbox(PAUSED, waits_again=True)
    await add(sessions, tenant(), backend(capacity=1, paused_takes_place=True), row, sandbox())

    told = await view(row)

    assert told.estimate == timedelta()
    assert told.reason == "A slot at local is about to be assigned."


@pytest.mark.parametrize("seed", range(5))
async def test_queue_view__positions_are_the_order_of_admission(sessions, seed):
    chance = Random(seed)
    rows = [
        sandbox(tenant_id=chance.choice("abc"), priority=chance.randint(0, 2)) for _ in range(20)
    ]
    running = [sandbox(RUNNING, tenant_id=chance.choice("abc")) for _ in range(5)]
    await add(sessions, *map(tenant, "abc"), backend(capacity=5), *rows, *running)
    async with sessions() as session:
        views = await describe_queues(session, rows)
    expected = sorted(rows, key=lambda row: views[row.id].position)

    async with sessions.begin() as session:
        local = await session.get_one(type(backend()), "local")
        for row in expected:
            local.capacity += 1
            [admitted] = await Admission(sessions).admit(session, ["local"])
            assert admitted.id == row.id
