"""Two servers and one sandbox: one hangs or dies in the middle of an act, and the other goes on."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sandbox_server.domain.state import State, Target
from tests.server.support.fault_proxy import Held
from tests.server.support.managed_sandboxes import DAY, HOUR, MINUTE, SOON

pytestmark = pytest.mark.needs_engine

CREATE = "POST /v2/sandboxes"
CONNECT = "POST /v2/sandboxes/"
PAUSE = "POST /sandboxes/"
KILL = "DELETE /sandboxes/"
HELD = pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])


@asynccontextmanager
async def _hanging(server, proxy, sandbox_id, request, *, carried_out):
    """Let a server hang in a request, and its lease lapse; at the end it gets its answer after all."""
    held = Held(carried_out=carried_out)
    proxy.on(request, held)
    job = await server.lease(sandbox_id)
    late = asyncio.create_task(server.reconciler.reconcile(job))
    await held.wait_reached()
    await server.lapse(job)
    yield
    held.let_go()
    await late


async def _is_one(living, sandbox_id):
    """Check that of the sandbox there is what its row says, and nothing else."""
    row = await living.row(sandbox_id)
    there = {one.id: State(one.state) for one in await living.backend.list_all()}
    at_provider = row.state in {State.RUNNING, State.PAUSED}
    assert there == ({row.backend_sandbox_id: row.state} if at_provider else {})
    assert row.state_reason
    return row


@HELD
async def test_takeover__continues_the_start_of_a_hanging_server(
    living, faulty, proxy, carried_out
):
    sandbox_id = await living.admitted(timeout=HOUR)
    async with _hanging(faulty, proxy, sandbox_id, CREATE, carried_out=carried_out):
        await living.settle(sandbox_id)
        first = await living.row(sandbox_id)
        assert first.state is State.RUNNING

    row = await _is_one(living, sandbox_id)
    assert row.generation == first.generation
    assert (row.backend_sandbox_id, row.expires_at) == (first.backend_sandbox_id, first.expires_at)
    assert await living.states(sandbox_id) == ["running"]


@HELD
async def test_takeover__a_late_start_of_an_ended_sandbox_is_killed(
    living, faulty, proxy, carried_out
):
    sandbox_id = await living.admitted()
    async with _hanging(faulty, proxy, sandbox_id, CREATE, carried_out=carried_out):
        await living.want(sandbox_id, Target.GONE)
        await living.settle(sandbox_id)
        assert (await living.row(sandbox_id)).state is State.STOPPED
    assert await living.is_due(sandbox_id)

    await living.settle(sandbox_id)

    row = await _is_one(living, sandbox_id)
    assert row.state is State.STOPPED


async def test_takeover__a_late_start_of_a_sandbox_that_has_another_is_killed(
    living, faulty, proxy
):
    sandbox_id = await living.admitted()
    other = await living.started()
    other_id = (await living.row(other)).backend_sandbox_id
    async with _hanging(faulty, proxy, sandbox_id, CREATE, carried_out=True):
        row = await living.row(sandbox_id)
        await living.change(other, backend_sandbox_id=None)
        await living.change(sandbox_id, backend_sandbox_id=other_id, generation=row.generation + 1)

    assert [one.id for one in await living.backend.list_all()] == [other_id]


async def test_takeover__a_late_start_of_a_removed_row_is_killed(living, faulty, proxy):
    sandbox_id = await living.admitted()
    async with _hanging(faulty, proxy, sandbox_id, CREATE, carried_out=True):
        await living.forget(sandbox_id)

    assert await living.provider_states() == []


@HELD
@pytest.mark.parametrize("then", [Target.PAUSED, Target.RUNNING, Target.GONE])
async def test_takeover__continues_the_pause_of_a_hanging_server(
    living, faulty, proxy, carried_out, then
):
    sandbox_id = await living.started(timeout=HOUR)
    before = await living.row(sandbox_id)
    await living.want(sandbox_id, Target.PAUSED)
    async with _hanging(faulty, proxy, sandbox_id, PAUSE, carried_out=carried_out):
        await living.want(sandbox_id, then)
        await living.settle(sandbox_id)
        if then is Target.RUNNING and carried_out:
            await living.let_in(sandbox_id)
            await living.settle(sandbox_id)
        first = await living.row(sandbox_id)
        assert first.target is then

    row = await living.row(sandbox_id)
    assert (row.generation, row.state) == (first.generation, first.state)
    if then is Target.PAUSED:
        assert row.state is State.PAUSED
        assert row.remaining == pytest.approx(before.timeout, abs=SOON)
    elif then is Target.RUNNING:
        assert row.state is State.RUNNING
        assert row.expires_at >= before.expires_at
    else:
        await _is_one(living, sandbox_id)


@HELD
async def test_takeover__continues_the_resume_of_a_hanging_server(
    living, faulty, proxy, carried_out
):
    sandbox_id = await living.paused(timeout=HOUR)
    left = (await living.row(sandbox_id)).remaining
    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    async with _hanging(faulty, proxy, sandbox_id, CONNECT, carried_out=carried_out):
        await living.settle(sandbox_id)
        first = await living.row(sandbox_id)

    row = await _is_one(living, sandbox_id)
    assert (row.generation, row.state) == (first.generation, State.RUNNING)
    assert row.expires_at == row.last_activity_at + left
    assert (await living.states(sandbox_id)).count("running") == 2


@HELD
async def test_takeover__continues_the_kill_of_a_hanging_server(living, faulty, proxy, carried_out):
    sandbox_id = await living.started()
    await living.want(sandbox_id, Target.GONE)
    async with _hanging(faulty, proxy, sandbox_id, KILL, carried_out=carried_out):
        await living.settle(sandbox_id)

    row = await _is_one(living, sandbox_id)
    assert row.state is State.STOPPED
    assert await living.states(sandbox_id) == ["running", "stopping", "stopped"]


@HELD
@pytest.mark.parametrize("request_line", [PAUSE, CONNECT])
async def test_takeover__a_pause_for_the_maximum_run_ends_running(
    limited, limited_faulty, proxy, carried_out, request_line
):
    sandbox_id = await limited.started(timeout=DAY)
    before = await limited.row(sandbox_id)
    await limited.pass_time(sandbox_id, 51 * MINUTE)
    async with _hanging(limited_faulty, proxy, sandbox_id, request_line, carried_out=carried_out):
        await limited.settle_at_last(sandbox_id)
        first = await limited.row(sandbox_id)

    row = await limited.row(sandbox_id)
    assert (row.state, row.target) == (State.RUNNING, Target.RUNNING)
    assert row.generation == first.generation
    assert row.started_at > before.started_at
    assert row.expires_at == pytest.approx(before.expires_at - 51 * MINUTE, abs=SOON)
