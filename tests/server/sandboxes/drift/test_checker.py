from datetime import timedelta

import pytest
from e2b import AsyncSandbox

from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b import wire
from tests.server.sandboxes.drift.patrols import AT_ONCE, LIST, backend_row, patrol
from tests.server.support.fault_proxy import answer_with, hold
from tests.server.support.managed_sandboxes import HOUR, MINUTE, living_at

pytestmark = pytest.mark.needs_engine


async def test_patrol__changes_nothing_without_drift(living):
    running, paused = await living.started(), await living.paused()
    before = [await living.row(one) for one in (running, paused)]

    await patrol(living)

    after = [await living.row(one) for one in (running, paused)]
    assert [one.generation for one in after] == [one.generation for one in before]
    row = await backend_row(living)
    assert (row.state, row.strangers) == ("up", 0)
    assert row.seen_at


async def test_patrol__a_vanished_sandbox_fails_with_a_reason(living):
    sandbox_id = await living.started()
    await living.backend.kill((await living.row(sandbox_id)).backend_sandbox_id)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert row.state is State.FAILED
    assert "provider 'local' no longer has the sandbox" in row.state_reason
    assert (await living.job(kinds.ADMISSION, "local")) is not None


async def test_patrol__a_vanished_paused_sandbox_fails(living):
    sandbox_id = await living.paused()
    await living.backend.kill((await living.row(sandbox_id)).backend_sandbox_id)
    await patrol(living)
    assert (await living.row(sandbox_id)).state is State.FAILED


async def test_patrol__a_sandbox_missing_in_the_list_is_read_before_it_fails(living, faulty, proxy):
    sandbox_id = await living.started()
    proxy.on(LIST, answer_with(200, "[]"))
    await patrol(faulty)
    assert (await living.row(sandbox_id)).state is State.RUNNING


async def test_patrol__a_pause_outside_this_server_keeps_the_remaining_time(living):
    sandbox_id = await living.started(timeout=HOUR)
    await living.backend.pause((await living.row(sandbox_id)).backend_sandbox_id)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert timedelta() < row.remaining < HOUR
    assert (await living.job(kinds.SANDBOX, sandbox_id)).run_at < row.retain_until
    assert (await living.events(sandbox_id))[-1].data["actor"]["kind"] == "provider"


async def test_patrol__a_resume_outside_this_server_starts_a_new_run(living):
    sandbox_id = await living.paused(timeout=HOUR)
    provider_id = (await living.row(sandbox_id)).backend_sandbox_id
    await living.backend.connect(provider_id, timeout=MINUTE)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.RUNNING, Target.RUNNING)
    assert row.expires_at
    assert row.retain_until is None


async def test_patrol__a_list_from_before_a_pause_does_not_undo_it(living, faulty, proxy):
    sandbox_id = await living.started()

    async def pause_meanwhile(exchange):
        answer = await exchange.pass_on()
        await living.want(sandbox_id, Target.PAUSED)
        await living.settle(sandbox_id)
        await exchange.answer(answer)

    proxy.on(LIST, pause_meanwhile)
    await patrol(faulty)
    assert (await living.row(sandbox_id)).state is State.PAUSED
    assert await living.states(sandbox_id) == ["running", "pausing", "paused"]


async def test_patrol__a_sandbox_created_during_the_list_is_no_orphan(living, faulty, proxy):
    created = []

    async def create_meanwhile(exchange):
        created.append(await living.started())
        await exchange.relay()

    proxy.on(LIST, create_meanwhile)
    await patrol(faulty)
    assert (await living.row(created[0])).state is State.RUNNING
    assert (await backend_row(living)).strangers == 0


async def test_patrol__of_two_with_one_id_the_rows_own_is_kept(living, options):
    sandbox_id = await living.started()
    labels = {wire.INSTALLATION: living.backend.installation_id, wire.SANDBOX: sandbox_id}
    await AsyncSandbox.create(metadata=labels, **options)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert row.state is State.RUNNING
    assert [one.id for one in await living.backend.list_all()] == [row.backend_sandbox_id]


async def test_patrol__a_create_that_finished_after_the_end_is_killed(living, left_behind):
    sandbox_id = await living.queued()
    await living.want(sandbox_id, Target.GONE)
    await living.settle(sandbox_id)
    await left_behind(sandbox_id)

    await patrol(living)
    assert (await living.job(kinds.SANDBOX, sandbox_id)).run_at is not None
    await living.settle(sandbox_id)

    assert await living.backend.list_all() == []
    assert (await living.row(sandbox_id)).state is State.STOPPED


async def test_patrol__a_queued_sandbox_that_runs_already_is_not_started_again(living, left_behind):
    sandbox_id = await living.queued()
    _, access = await left_behind(sandbox_id)

    await patrol(living)
    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert (row.state, row.backend_sandbox_id) == (State.RUNNING, access.provider_id)
    assert [one.id for one in await living.backend.list_all()] == [access.provider_id]
    assert await living.states(sandbox_id) == ["starting", "running"]


async def test_backend_health__two_failures_mark_a_backend_down_with_the_reason(faulty, proxy):
    await proxy.refuse()
    await patrol(faulty)
    assert (await backend_row(faulty)).state == "up"
    await patrol(faulty, again=AT_ONCE)
    row = await backend_row(faulty)
    assert row.state == "down"
    assert "cannot be reached" in row.state_reason


async def test_backend_health__a_backend_that_does_not_answer_is_down(faulty, proxy):
    proxy.on(LIST, hold)
    await patrol(faulty, again=AT_ONCE, answer_within=timedelta(milliseconds=100))
    assert (await backend_row(faulty)).state == "down"


async def test_backend_health__a_wrong_key_is_recorded_in_the_backends_row(living, backend_at):
    refused = living_at(
        living.sessions, backend_at(api_key="e2b_wrong"), tenant_id=living.tenant_id
    )
    await patrol(refused, again=AT_ONCE)
    assert "answered 401" in (await backend_row(living)).state_reason


async def test_backend_health__a_busy_backend_is_not_marked_down(faulty, proxy):
    proxy.on(LIST, answer_with(429), times=2)
    await patrol(faulty, again=AT_ONCE)
    assert (await backend_row(faulty)).state == "up"
    await patrol(faulty, busy_for=AT_ONCE)
    assert (await backend_row(faulty)).state == "down"


async def test_backend_health__recovery_admits_queued_sandboxes_and_retries_dead_jobs(
    living, faulty, proxy
):
    sandbox_id = await living.started()
    await living.want(sandbox_id, Target.PAUSED)
    await proxy.refuse()
    await patrol(faulty, again=AT_ONCE)
    job = await living.lease(sandbox_id)
    with pytest.raises(BackendUnavailable):
        await faulty.reconciler.reconcile(job)
    async with living.sessions.begin() as session:
        await JobRepository(session).fail(job, error="down", delay=HOUR, max_attempts=1)
    assert (await living.job(kinds.SANDBOX, sandbox_id)).dead_at

    await proxy.listen()
    await patrol(faulty)

    assert (await backend_row(living)).state == "up"
    assert (await living.job(kinds.ADMISSION, "local")).run_at
    revived = await living.job(kinds.SANDBOX, sandbox_id)
    assert revived.dead_at is None
    assert revived.run_at
    await living.settle(sandbox_id)
    assert (await living.row(sandbox_id)).state is State.PAUSED


async def test_backend_health__a_backend_removed_from_the_settings_is_not_checked(living):
    job = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="gone", attempts=1, leased_by="a")
    patrol = living.drift_checker()
    assert await patrol.check(job) is None
