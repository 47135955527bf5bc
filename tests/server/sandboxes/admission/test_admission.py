import asyncio
from datetime import timedelta

import pytest

from sandbox_server.db.models import Backend, Sandbox
from sandbox_server.domain.errors import QueueFull
from sandbox_server.domain.events import Cause
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX
from sandbox_server.log.events import EventRepository
from sandbox_server.sandboxes.admission import Admission, require_queue_slot
from tests.server.jobs.job_actions import wait_for_a_lock
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.sandbox_rows import (
    HOUR,
    KEY,
    add,
    backend,
    due_subjects,
    now,
    read,
    sandbox,
    states,
    tenant,
)

pytestmark = EVERY_POSTGRES

SECOND = timedelta(seconds=1)
QUEUED, STARTING, RUNNING = State.QUEUED, State.STARTING, State.RUNNING
PAUSED, RESUMING = State.PAUSED, State.RESUMING


@pytest.fixture
def admission(sessions):
    return Admission(sessions)


@pytest.fixture
def admit(sessions, admission):
    """Give out places in a transaction of its own; gives the ids of who got one."""

    async def act(*backends, own=None):
        async with sessions.begin() as session:
            moved = await admission.admit(session, backends or ["local"], own=own)
        return [row.id for row in moved]

    return act


@pytest.fixture
def work(admission):
    async def act(subject="local"):
        return await admission.admit_queued(LeasedJob(1, ADMISSION, subject, 1, "me"))

    return act


async def events(sessions, tenant_id="t"):
    async with sessions() as session:
        return await EventRepository(session).list_page(tenant_id, limit=100)


async def change(sessions, model, key, **columns):
    async with sessions.begin() as session:
        row = await session.get_one(model, key)
        for name, value in columns.items():
            setattr(row, name, value)


async def test_admission__a_queued_sandbox_gets_a_free_slot_and_a_start_deadline(sessions, admit):
    row = sandbox(since=now() - HOUR)
    await add(sessions, tenant(), backend(), row)

    assert await admit() == [row.id]

    [admitted] = await read(sessions, row)
    assert (admitted.state, admitted.backend, admitted.generation) == (STARTING, "local", 1)
    assert admitted.expires_at
    assert admitted.expires_at > now() + HOUR / 2


async def test_admission__a_resume_keeps_its_remaining_time(sessions, admit):
    row = sandbox(PAUSED, waits_again=True)
    await add(sessions, tenant(), backend(), row)

    assert await admit() == [row.id]

    [admitted] = await read(sessions, row)
    assert (admitted.state, admitted.generation) == (RESUMING, 1)
    assert (admitted.remaining, admitted.retain_until) == (row.remaining, row.retain_until)


async def test_admission__never_exceeds_the_capacity(sessions, admit):
    rows = [sandbox() for _ in range(5)]
    taking = [sandbox(state) for state in State if state not in {QUEUED, PAUSED}]
    for ended in taking[-2:]:
        ended.ended_at = now()
    await add(sessions, tenant(), backend(capacity=7), *taking, *rows)

    assert len(await admit()) == 2
    assert await admit() == []


async def test_admission__a_paused_sandbox_takes_a_slot_only_where_memory_is_kept(sessions, admit):
    await add(sessions, tenant(), backend(capacity=2), sandbox(PAUSED), sandbox(RUNNING))
    rows = [sandbox(), sandbox()]
    await add(sessions, *rows)
    await change(sessions, Backend, "local", paused_takes_place=True)
    assert await admit() == []

    await change(sessions, Backend, "local", paused_takes_place=False)
    assert await admit() == [rows[0].id]


async def test_admission__a_resume_in_a_kept_slot_needs_no_free_one(sessions, admit):
    paused = [sandbox(PAUSED, waits_again=True) for _ in range(2)]
    await add(sessions, tenant(), backend(capacity=2, paused_takes_place=True), *paused, sandbox())

    assert await admit() == [row.id for row in paused]


async def test_admission__a_tenant_at_its_quota_does_not_block_others(sessions, admit):
    rows = [sandbox(), sandbox(tenant_id="u")]
    elsewhere = sandbox(RUNNING, candidates=["other"])
    await add(sessions, tenant(max_running=1), tenant("u"), backend(), backend("other"))
    await add(sessions, elsewhere, *rows)

    assert await admit() == [rows[1].id]


async def test_admission__paused_sandboxes_do_not_count_towards_the_quota(sessions, admit):
    row = sandbox()
    await add(sessions, tenant(max_running=1), backend(), sandbox(PAUSED), row)

    assert await admit() == [row.id]


@pytest.mark.parametrize(
    "trouble",
    [{"state": "down"}, {"drained": True}, {"busy_until": now() + HOUR}, {"capacity": 0}],
    ids=["down", "drained", "busy", "full"],
)
async def test_admission__nothing_is_admitted_to_a_backend_in_trouble(sessions, admit, trouble):
    row = sandbox(candidates=["local", "spare"])
    await add(sessions, tenant(), backend(**trouble), backend("spare", capacity=0), row)
    assert await admit("local", "spare") == []

    await change(sessions, Backend, "spare", capacity=1)
    assert await admit("local", "spare") == [row.id]
    assert (await read(sessions, row))[0].backend == "spare"


async def test_admission__a_drained_backend_resumes_its_own_sandboxes(sessions, admit):
    row = sandbox(PAUSED, waits_again=True)
    await add(sessions, tenant(), backend(drained=True), row, sandbox())

    assert await admit() == [row.id]


async def test_admission__a_busy_backend_admits_again_after_its_pause(sessions, admit):
    row = sandbox()
    await add(sessions, tenant(), backend(busy_until=now() - SECOND), row)

    assert await admit() == [row.id]


async def test_admission__a_slot_goes_only_to_sandboxes_allowed_at_the_backend(sessions, admit):
    paused = sandbox(PAUSED, waits_again=True, backend="other", candidates=["other", "local"])
    rows = [sandbox(candidates=["other"]), paused, sandbox(candidates=["other", "local"])]
    await add(sessions, tenant(), backend(), backend("other"), *rows)

    assert await admit() == [rows[2].id]


async def test_admission__an_expired_request_is_not_admitted(sessions, admit):
    await add(sessions, tenant(), backend(), sandbox(queue_expires_at=now() - SECOND))

    assert await admit() == []


@pytest.mark.parametrize("target", [Target.GONE, Target.PAUSED])
async def test_admission__a_sandbox_whose_target_is_not_running_is_not_admitted(
    sessions, admit, target
):
    state = QUEUED if target is Target.GONE else PAUSED
    await add(sessions, tenant(), backend(), sandbox(state, target=target))

    assert await admit() == []


async def test_admission__records_its_reason_and_makes_the_start_due(sessions, admit):
    row = sandbox(since=now() - timedelta(minutes=3))
    await add(sessions, tenant(), backend(), row)

    await admit()

    [event] = await events(sessions)
    assert (event.type, event.sandbox_id, event.data["cause"]) == (
        "sandbox.starting",
        row.id,
        Cause.ROOM,
    )
    assert event.data["reason"].startswith("Admitted to a free slot at local after 3 min")
    assert await due_subjects(sessions, SANDBOX) == [row.id]


async def test_admission__a_direct_admission_commits_with_the_request(sessions, admit):
    row = sandbox()
    await add(sessions, tenant(), backend(), row)

    await admit(own=row.id)

    [event] = await events(sessions)
    assert event.data["cause"] == Cause.REQUEST
    assert event.data["actor"] == KEY.model_dump()
    assert await due_subjects(sessions, SANDBOX) == []


async def test_admission__older_requests_come_before_the_callers_own(sessions, admit):
    await add(sessions, tenant(), tenant("u"), backend(capacity=1))
    other, own = sandbox(tenant_id="u", since=now() - SECOND), sandbox()
    await add(sessions, other, own)

    assert await admit(own=own.id) == [other.id]

    assert await states(sessions, other, own) == [STARTING, QUEUED]
    assert await due_subjects(sessions, SANDBOX) == [other.id]


async def test_admission__the_job_runs_again_when_the_backend_is_no_longer_busy(sessions, work):
    until = now() + HOUR
    await add(sessions, tenant(), backend(busy_until=until), backend("idle"), sandbox())

    assert await work() == until
    assert await work("idle") is None


async def test_admission__an_unknown_backend_admits_nothing(work):
    assert await work("gone") is None


async def test_admission__an_end_at_one_backend_frees_quota_for_another(sessions, work):
    row = sandbox(candidates=["other"])
    await add(sessions, tenant(), backend(), backend("other"), row)

    await work("local")

    assert await states(sessions, row) == [STARTING]


async def test_admission__a_request_over_quota_is_reconsidered_once_the_change_is_visible(
    sessions, admission, work
):
    running, row = sandbox(RUNNING), sandbox(candidates=["other"])
    await add(sessions, tenant(max_running=1), backend(), backend("other"), running)

    async with sessions.begin() as request:
        request.add(row)
        await request.flush()
        assert await admission.admit(request, ["other"], own=row.id) == []
        await change(sessions, Sandbox, running.id, state=State.STOPPED, ended_at=now())
        await work("local")

    [subject] = await due_subjects(sessions, ADMISSION)
    await work(subject)
    assert await states(sessions, row) == [STARTING]


async def test_admission__a_request_that_lacks_only_capacity_waits_for_a_slot(sessions, admit):
    row = sandbox()
    await add(sessions, tenant(), backend(capacity=0), row)

    assert await admit(own=row.id) == []

    assert await due_subjects(sessions, ADMISSION) == []


async def test_queue__is_limited_per_tenant(sessions):
    await add(sessions, tenant(max_queued=2), tenant("u"), backend())
    await add(sessions, sandbox(), sandbox(PAUSED, waits_again=True), sandbox(tenant_id="u"))

    async with sessions.begin() as session:
        await require_queue_slot(session, "t")
        session.add(sandbox())
        with pytest.raises(QueueFull) as refused:
            await require_queue_slot(session, "t")
        await session.rollback()
    assert str(refused.value) == "The queue is full: 2 sandboxes are waiting."
    assert refused.value.retry_after
    assert not await read(sessions)


async def test_admission__a_request_that_leaves_the_queue_meanwhile_leaves_the_slot_to_the_next(
    sessions, admit
):
    leaving, row = sandbox(since=now() - HOUR), sandbox()
    await add(sessions, tenant(), backend(capacity=1), leaving, row)

    async with sessions.begin() as session:
        (await session.get_one(Sandbox, leaving.id)).target = Target.GONE
        await session.flush()
        admitting = asyncio.create_task(admit())
        await wait_for_a_lock(sessions)
    assert await admitting == []

    assert await due_subjects(sessions, ADMISSION) == ["local"]
    assert await admit() == [row.id]
