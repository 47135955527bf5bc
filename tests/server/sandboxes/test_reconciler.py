from dataclasses import replace

import pytest

from sandbox_server.domain.jobs import ProviderSaturated
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.providers.protocol.limits import ProviderLimits
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.services.encrypted_columns import seal_envs
from tests.server.support.managed_sandboxes import HOUR, MINUTE, WISH, living_at

pytestmark = pytest.mark.needs_engine

OUTCOME = {
    Target.RUNNING: State.RUNNING,
    Target.PAUSED: State.PAUSED,
    Target.GONE: State.STOPPED,
}


def _sealed(living, sandbox_id, **envs):
    return seal_envs(living.vault, sandbox_id, {"envs": envs})


async def test_reconciler__starts_an_admitted_sandbox(living):
    sandbox_id = await living.admitted(timeout=HOUR)

    look_again = await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.RUNNING
    assert row.state_reason == "A test wants it."
    assert row.expires_at == row.last_activity_at + HOUR
    assert look_again < row.provider_until < row.expires_at
    [there] = await living.backend.list_all()
    assert (there.id, there.sandbox_id) == (row.backend_sandbox_id, sandbox_id)
    assert await living.states(sandbox_id) == ["running"]


async def test_reconciler__stores_encrypted_access_to_a_running_sandbox(living):
    sandbox_id = await living.admitted()
    await living.change(sandbox_id, envs_sealed=_sealed(living, sandbox_id, GREETING="hello"))
    await living.settle(sandbox_id)

    sandbox = await living.inside(sandbox_id)

    assert (await sandbox.commands.run("echo $GREETING")).stdout == "hello\n"


async def test_reconciler__pauses_and_resumes_with_actor_and_cause(living):
    sandbox_id = await living.started()
    await living.want(sandbox_id, Target.PAUSED)
    await living.settle(sandbox_id)
    assert await living.provider_states() == ["paused"]

    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    await living.settle(sandbox_id)

    assert await living.provider_states() == ["running"]
    assert await living.states(sandbox_id) == ["running", "pausing", "paused", "running"]
    for event in await living.events(sandbox_id):
        assert event.data["cause"] == "request"
        assert event.data["actor"] == {"kind": "key", "id": "a-key"}
        assert event.data["reason"] == "A test wants it."


async def test_reconciler__a_target_set_during_a_start_follows_and_is_not_its_cause(faulty, proxy):
    sandbox_id = await faulty.admitted()

    async def want_a_pause_meanwhile(exchange):
        pause = replace(WISH, reason="Paused by API request.")
        await faulty.want(sandbox_id, Target.PAUSED, wish=pause)
        await exchange.relay()

    proxy.on("POST /v2/sandboxes", want_a_pause_meanwhile)
    await faulty.settle(sandbox_id)

    told = [(event.type, event.data["reason"]) for event in await faulty.events(sandbox_id)]
    assert told == [
        ("sandbox.running", WISH.reason),
        ("sandbox.pausing", "Paused by API request."),
        ("sandbox.paused", "Paused by API request."),
    ]


async def test_reconciler__a_paused_sandbox_to_be_resumed_waits_for_a_slot(living):
    sandbox_id = await living.paused()
    await living.want(sandbox_id, Target.RUNNING)

    await living.settle(sandbox_id)

    assert (await living.row(sandbox_id)).state is State.PAUSED


async def test_reconciler__a_deleted_sandbox_is_gone_with_its_secrets(living):
    sandbox_id = await living.admitted()
    await living.change(sandbox_id, envs_sealed=_sealed(living, sandbox_id, GREETING="hello"))
    await living.settle(sandbox_id)
    await living.want(sandbox_id, Target.GONE)

    assert await living.settle(sandbox_id) is None

    row = await living.row(sandbox_id)
    assert row.state is State.STOPPED
    assert row.state_reason
    assert row.ended_at
    assert row.access_sealed is row.envs_sealed is None
    assert await living.provider_states() == []
    assert await living.states(sandbox_id) == ["running", "stopping", "stopped"]


async def test_reconciler__cancelling_a_queued_request_calls_no_provider(faulty, proxy):
    sandbox_id = await faulty.queued()
    await faulty.want(sandbox_id, Target.GONE)

    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.STOPPED
    assert proxy.seen == []


@pytest.mark.parametrize("target", [Target.PAUSED, Target.GONE])
async def test_reconciler__a_released_slot_is_offered_in_the_same_transaction(living, target):
    sandbox_id = await living.started()
    assert await living.job(kinds.ADMISSION, living.backend_name) is None

    await living.want(sandbox_id, target)
    await living.settle(sandbox_id)

    assert (await living.job(kinds.ADMISSION, living.backend_name)).run_at


async def test_reconciler__a_step_after_its_own_commit_needs_no_query(faulty, proxy):
    sandbox_id = await faulty.started()
    row = await faulty.want(sandbox_id, Target.PAUSED)
    proxy.seen.clear()

    await faulty.settle(sandbox_id, context=Observation.of_read(row, await faulty.now()))

    assert (await faulty.row(sandbox_id)).state is State.PAUSED
    assert proxy.seen == [f"POST /sandboxes/{row.backend_sandbox_id}/pause"]


async def test_reconciler__a_start_after_a_direct_admission_needs_one_call(faulty, proxy):
    await faulty.started()  # with the first, what the provider keeps of it is checked
    proxy.seen.clear()
    sandbox_id = await faulty.admitted()
    await faulty.change(sandbox_id, tried_at=await faulty.now())
    row = await faulty.row(sandbox_id)

    await faulty.settle(sandbox_id, context=Observation.of_commit(row, await faulty.now()))

    assert (await faulty.row(sandbox_id)).state is State.RUNNING
    assert proxy.seen == ["POST /v2/sandboxes"]


@pytest.mark.parametrize("target", Target)
async def test_reconciler__a_step_left_by_a_dead_server_is_verified_first(living, faulty, target):
    sandbox_id = await living.paused()
    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    row = await living.row(sandbox_id)
    await living.backend.connect(row.backend_sandbox_id, timeout=HOUR)
    row = await faulty.want(sandbox_id, target)

    await faulty.settle(sandbox_id, context=Observation.of_read(row, await faulty.now()))

    state = (await living.row(sandbox_id)).state
    assert state is OUTCOME[target]
    assert await living.provider_states() == [state] * (target is not Target.GONE)


async def test_provider_limits__a_job_refused_for_saturation_leaves_the_row_unchanged(
    living, backend_at
):
    limits = ProviderLimits(2)
    limits.share(2, on_free=lambda: None)
    saturated = living_at(living.sessions, backend_at(limits=limits), tenant_id=living.tenant_id)
    sandbox_id = await saturated.started()
    await saturated.want(sandbox_id, Target.PAUSED)

    with limits.job():
        limits.enter(living.backend_name)
        with limits.job(), pytest.raises(ProviderSaturated):
            await saturated.settle(sandbox_id)

    assert (await saturated.row(sandbox_id)).state is State.RUNNING


async def test_reconciler__an_unknown_sandbox_needs_nothing(living):
    assert await living.settle("0" * 20) is None


async def test_reconciler__a_deadline_that_was_moved_is_only_checked(living):
    sandbox_id = await living.started(idle_timeout=10 * MINUTE)

    at = await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.RUNNING
    assert at <= row.last_activity_at + 10 * MINUTE
