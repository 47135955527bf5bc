from datetime import datetime, timedelta

import pytest

from sandbox_server.domain.explanations import format_instant
from sandbox_server.domain.state import State, Target
from tests.server.sandboxes.drift.patrols import HEALTH, JOB, NOT_RUNNING, patrol, patrol_of
from tests.server.support.fault_proxy import hold

pytestmark = pytest.mark.needs_engine


async def test_liveness__a_running_sandbox_that_does_not_answer_is_marked_until_it_does(
    living, faulty, proxy
):
    sandbox_id = await living.started()
    proxy.on(HEALTH, NOT_RUNNING, times=2)

    await patrol(faulty)

    row = await living.row(sandbox_id)
    assert row.state is State.RUNNING
    assert row.silent_since
    assert "not responding since" in row.state_reason
    assert await living.states(sandbox_id) == ["running", "silent"]

    await patrol(faulty)

    assert (await living.row(sandbox_id)).silent_since is None
    assert await living.states(sandbox_id) == ["running", "silent", "answering"]


async def test_liveness__the_event_contains_the_time_of_the_last_answer(faulty, living, proxy):
    sandbox_id = await living.started()
    patrol = patrol_of(faulty)
    await patrol.check(JOB)
    proxy.on(HEALTH, NOT_RUNNING, times=2)

    await patrol.check(JOB)

    silent = (await living.events(sandbox_id))[-1]
    answered_at = datetime.fromisoformat(silent.data["last_answer_at"])
    row = await living.row(sandbox_id)
    assert row.started_at < answered_at < row.silent_since
    assert format_instant(answered_at) in row.state_reason


async def test_liveness__an_answer_after_the_timeout_counts_as_missing(living, faulty, proxy):
    sandbox_id = await living.started()
    proxy.on(HEALTH, hold, times=2)
    await patrol(faulty, each=timedelta(milliseconds=100))
    assert (await living.row(sandbox_id)).silent_since


async def test_liveness__one_missing_answer_is_tolerated(living, faulty, proxy):
    sandbox_id = await living.started()
    proxy.on(HEALTH, NOT_RUNNING)
    await patrol(faulty)
    assert (await living.row(sandbox_id)).silent_since is None


async def test_liveness__a_sandbox_paused_meanwhile_is_not_marked(living, faulty, proxy):
    sandbox_id = await living.started()

    async def pause_meanwhile(exchange):
        await living.backend.pause((await living.row(sandbox_id)).backend_sandbox_id)
        await exchange.relay()

    proxy.on(HEALTH, pause_meanwhile)
    await patrol(faulty)
    row = await living.row(sandbox_id)
    assert row.silent_since is None

    await patrol(faulty)
    assert (await living.row(sandbox_id)).state is State.PAUSED


async def test_liveness__an_unreachable_sandbox_does_not_hide_others(living, faulty, proxy, caplog):
    unreadable, silent = await living.started(), await living.started()
    await living.change(unreadable, access_sealed=b"sealed with a key that is lost")
    proxy.on(HEALTH, NOT_RUNNING, times=2)
    await patrol(faulty)
    assert (await living.row(silent)).silent_since
    assert "DecryptionFailed" in caplog.text


async def test_liveness__a_pause_ends_the_mark(living, faulty, proxy):
    sandbox_id = await living.started()
    proxy.on(HEALTH, NOT_RUNNING, times=2)
    await patrol(faulty)
    await living.want(sandbox_id, Target.PAUSED)
    await living.settle(sandbox_id)
    assert (await living.row(sandbox_id)).silent_since is None
