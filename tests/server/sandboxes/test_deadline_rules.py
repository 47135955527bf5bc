"""Those rules for deadlines that take a provider and a database to keep; the others are in domain/."""

from datetime import timedelta

import pytest

from sandbox_server.domain.state import OnTimeout, State, Target
from sandbox_server.jobs import kinds
from sandbox_server.sandboxes.observation import Observation
from tests.engine.polling import until
from tests.server.support.fault_proxy import answer_with
from tests.server.support.managed_sandboxes import DAY, HOUR, MINUTE, SOON

pytestmark = pytest.mark.needs_engine

CONNECT = "POST /v2/sandboxes/"
NO = answer_with(400, '{"code": 400, "message": "not like this"}')


async def _resume(living, sandbox_id):
    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    await living.settle(sandbox_id)


async def test_idle_timeout__pauses_with_the_arithmetic_in_the_reason(living):
    sandbox_id = await living.started(idle_timeout=10 * MINUTE)
    await living.pass_time(sandbox_id, 11 * MINUTE)

    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert "10 min of idle timeout" in row.state_reason
    assert await living.provider_states() == ["paused"]
    *_, pausing, paused = await living.events(sandbox_id)
    assert pausing.data["cause"] == paused.data["cause"] == "idle"


async def test_timeout__pauses_or_deletes_as_configured(living):
    kept = await living.started(timeout=HOUR)
    doomed = await living.started(timeout=HOUR, on_timeout=OnTimeout.DELETE)
    for sandbox_id in (kept, doomed):
        await living.pass_time(sandbox_id, HOUR)
        await living.settle(sandbox_id)

    assert (await living.row(kept)).state is State.PAUSED
    assert (await living.row(doomed)).state is State.STOPPED
    assert await living.provider_states() == ["paused"]


async def test_timeout__paused_time_does_not_count(living):
    sandbox_id = await living.started(timeout=HOUR)
    await living.pass_time(sandbox_id, 20 * MINUTE)
    await living.want(sandbox_id, Target.PAUSED)
    await living.settle(sandbox_id)
    left = (await living.row(sandbox_id)).remaining
    assert 39 * MINUTE < left <= 40 * MINUTE

    await living.pass_time(sandbox_id, 7 * DAY)
    await _resume(living, sandbox_id)

    row = await living.row(sandbox_id)
    assert row.expires_at == row.last_activity_at + left
    assert row.retain_until is row.remaining is None


async def test_retention__deletes_a_paused_sandbox(living):
    sandbox_id = await living.paused()
    row = await living.row(sandbox_id)
    assert await living.settle(sandbox_id) == row.retain_until

    await living.pass_time(sandbox_id, 31 * DAY)
    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.STOPPED
    assert "Retention expired" in row.state_reason
    assert await living.provider_states() == []


async def test_retention__a_failed_resume_keeps_it(faulty, proxy):
    sandbox_id = await faulty.paused()
    before = await faulty.row(sandbox_id)
    proxy.on(CONNECT, NO)

    await _resume(faulty, sandbox_id)

    after = await faulty.row(sandbox_id)
    assert (after.state, after.target) == (State.PAUSED, Target.PAUSED)
    assert after.retain_until == before.retain_until
    assert after.remaining == before.remaining
    assert after.expires_at is None
    assert (
        "Resume failed; the sandbox stays paused: Backend 'local': answered 400: not like this"
        in (after.state_reason)
    )
    assert await faulty.settle(sandbox_id) == before.retain_until


async def test_queue_timeout__an_expired_request_leaves_the_queue_with_a_reason(living):
    sandbox_id = await living.queued(wait=5 * MINUTE)
    row = await living.row(sandbox_id)
    assert await living.settle(sandbox_id) == row.queue_expires_at

    await living.pass_time(sandbox_id, 6 * MINUTE)
    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.STOPPED
    assert "Queue timeout" in row.state_reason


async def test_queue_timeout__an_expired_resume_stays_paused(living):
    sandbox_id = await living.paused()
    retained = (await living.row(sandbox_id)).retain_until
    await living.want(sandbox_id, Target.RUNNING)
    await living.change(sandbox_id, queue_expires_at=await living.now() - MINUTE)

    assert await living.settle(sandbox_id) == retained

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert "Queue timeout" in row.state_reason
    assert row.queue_expires_at is None
    assert (await living.states(sandbox_id))[-2:] == ["paused", "paused"]


@pytest.mark.parametrize("begun", [True, False])
async def test_start_timeout__ends_a_start_that_never_finishes(living, begun):
    sandbox_id = await living.admitted(timeout=HOUR)
    if begun:
        await living.change(sandbox_id, tried_at=await living.now())
    await living.pass_time(sandbox_id, HOUR)

    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.STOPPED
    assert "Start timeout" in row.state_reason


async def test_provider_timeout__is_extended_while_the_server_lives(faulty, proxy):
    sandbox_id = await faulty.started()
    row = await faulty.row(sandbox_id)
    before = await faulty.backend.info(row.backend_sandbox_id)
    assert before.ends_at <= row.provider_until < row.expires_at
    events = await faulty.states(sandbox_id)

    await faulty.pass_time(sandbox_id, 8 * MINUTE)
    proxy.seen.clear()
    await faulty.settle(sandbox_id)

    assert proxy.seen == [f"POST /sandboxes/{row.backend_sandbox_id}/timeout"]
    after = await faulty.backend.info(row.backend_sandbox_id)
    assert after.ends_at > before.ends_at
    extended = await faulty.row(sandbox_id)
    assert extended.provider_until > row.provider_until
    assert extended.expires_at == row.expires_at - 8 * MINUTE
    assert await faulty.states(sandbox_id) == events


async def test_provider_timeout__a_pause_by_the_provider_is_recorded_and_kept(living):
    sandbox_id = await living.started()
    row = await living.row(sandbox_id)
    await living.backend.set_timeout(row.backend_sandbox_id, timedelta(seconds=1))
    await until(lambda: _is_paused(living), timeout=60)
    await living.pass_time(sandbox_id, 20 * MINUTE)

    await living.settle_at_last(sandbox_id)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert row.state_reason == "Paused by provider 'local', not by this server."
    assert row.retain_until


async def _is_paused(living):
    return await living.provider_states() == ["paused"]


async def test_maximum_run__is_avoided_by_a_pause_that_keeps_the_slot(limited):
    sandbox_id = await limited.started(timeout=DAY, idle_timeout=2 * HOUR)
    before = await limited.row(sandbox_id)
    sandbox = await limited.inside(sandbox_id)
    working = await sandbox.commands.run("sleep 1000", background=True)
    await limited.pass_time(sandbox_id, 51 * MINUTE)

    await limited.settle(sandbox_id)

    row = await limited.row(sandbox_id)
    assert (row.state, row.target) == (State.RUNNING, Target.RUNNING)
    assert row.started_at > before.started_at
    assert row.expires_at == pytest.approx(before.expires_at - 51 * MINUTE, abs=SOON)
    assert row.last_activity_at == before.last_activity_at - 51 * MINUTE
    assert working.pid in {one.pid for one in await sandbox.commands.list()}
    states = await limited.states(sandbox_id)
    assert states == ["running", "pausing", "paused", "resuming", "running"]
    assert {event.data["cause"] for event in (await limited.events(sandbox_id))[1:]} == {
        "longest-run"
    }
    assert await limited.job(kinds.ADMISSION, "local") is None


async def test_deadline__one_that_is_moved_meanwhile_is_not_carried_out(living):
    sandbox_id = await living.started(timeout=HOUR)
    now = await living.now()
    await living.change(sandbox_id, expires_at=now)
    seen, connected = await living.row(sandbox_id), now + HOUR
    await living.change(sandbox_id, expires_at=connected)

    await living.settle(sandbox_id, context=Observation.of_read(seen, await living.now()))
    await living.settle_at_last(sandbox_id)

    row = await living.row(sandbox_id)
    assert (row.state, row.target, row.expires_at) == (State.RUNNING, Target.RUNNING, connected)


async def test_timeout__time_added_while_paused_counts_after_the_resume(living):
    sandbox_id = await living.paused(timeout=HOUR)
    await living.change(sandbox_id, remaining=3 * HOUR)

    await _resume(living, sandbox_id)

    row = await living.row(sandbox_id)
    assert row.expires_at == row.last_activity_at + 3 * HOUR
