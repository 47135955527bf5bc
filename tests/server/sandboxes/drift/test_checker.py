import contextlib
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
from e2b import AsyncSandbox

from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.domain.explanations import format_instant
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from sandbox_server.sandboxes.drift.liveness import LivenessTimeouts
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from tests.server.support.databases import new_database
from tests.server.support.fault_proxy import answer_with, hold
from tests.server.support.managed_sandboxes import HOUR, MINUTE, living_at

pytestmark = pytest.mark.needs_engine

LIST = "GET /v2/sandboxes"
HEALTH = "GET /health"
AT_ONCE = timedelta()
NOT_RUNNING = answer_with(502)
JOB = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="local", attempts=1, leased_by="a")


def patrol_of(living, *, again=HOUR, busy_for=HOUR, answer_within=MINUTE, each=MINUTE):
    return living.drift_checker(
        intervals=CheckIntervals(again=again, busy_for=busy_for, answer_within=answer_within),
        timeouts=LivenessTimeouts(each=each, between=AT_ONCE, all=HOUR),
    )


async def patrol(living, **intervals):
    """Look at the backend once."""
    return await patrol_of(living, **intervals).check(JOB)


async def backend_row(living):
    async with living.sessions() as session:
        return await BackendRepository(session).get(living.backend_name)


@pytest.fixture
def left_behind(living, new_sandbox):
    """Create sandboxes at the provider that no record is about."""

    async def create(sandbox_id=None, **fields):
        fields = {"sandbox_id": sandbox_id or new_id(), "tenant_id": living.tenant_id, **fields}
        wanted = new_sandbox(**fields)
        return wanted.sandbox_id, await living.backend.create(wanted)

    return create


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


async def test_orphan__a_tenants_sandbox_without_a_row_is_adopted(living, left_behind):
    sandbox_id, access = await left_behind()
    await living.backend.handle(access).files.write("kept", "work")

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.tenant_id, row.state) == (living.tenant_id, State.RUNNING)
    assert row.expires_at
    assert await living.states(sandbox_id) == ["paused", "running"]
    sandbox = living.backend.handle(open_access(living.vault, sandbox_id, row.access_sealed))
    assert await sandbox.files.read("kept") == "work"
    assert (await backend_row(living)).strangers == 0


async def test_orphan__an_adopted_paused_sandbox_stays_paused_until_it_is_requested(
    living, left_behind
):
    sandbox_id, access = await left_behind()
    await living.backend.pause(access.provider_id)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert row.retain_until
    assert await living.provider_states() == ["paused"]

    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    await living.settle(sandbox_id)
    assert (await living.row(sandbox_id)).access_sealed


@pytest.mark.parametrize("fields", [{"tenant_id": "nobody"}, {"sandbox_id": "not-an-id-of-ours"}])
async def test_orphan__a_sandbox_without_a_known_tenant_is_reported_and_never_killed(
    living, left_behind, caplog, fields
):
    _, access = await left_behind(**fields)

    await patrol(living)
    await patrol(living)

    assert (await backend_row(living)).strangers == 1
    assert [one.id for one in await living.backend.list_all()] == [access.provider_id]
    assert access.provider_id in caplog.text


async def test_orphan__sandboxes_of_another_installation_are_ignored(
    living, backend_at, new_sandbox
):
    theirs = backend_at(installation_id="theirs")
    access = await theirs.create(new_sandbox())
    try:
        await patrol(living)
        assert (await backend_row(living)).strangers == 0
        assert await theirs.info(access.provider_id)
    finally:
        await theirs.kill(access.provider_id)


@pytest.fixture
async def restored(living, database, database_url, server_url, backend_at):
    """Take a backup at some moment, and later have a server go on from it."""

    @contextlib.asynccontextmanager
    async def backup():
        await database.dispose()  # a database that somebody uses cannot be copied
        name = urlsplit(database_url).path.removeprefix("/")
        async with new_database(server_url, template=name) as url:
            copy = create_engine(url)
            yield living_at(create_sessions(copy), backend_at(), tenant_id=living.tenant_id)
            await copy.dispose()

    return backup


async def test_orphan__a_database_restored_from_a_backup_adopts_newer_sandboxes(living, restored):
    deleted, paused, resumed = [
        await one for one in (living.started(), living.started(), living.paused())
    ]
    begun = await living.queued()
    async with restored() as copy:
        await living.want(deleted, Target.GONE)
        await living.want(paused, Target.PAUSED)
        for sandbox_id in (resumed, begun):
            await living.want(sandbox_id, Target.RUNNING)
            await living.let_in(sandbox_id)
        for sandbox_id in (deleted, paused, resumed, begun):
            await living.settle(sandbox_id)
        created = await living.started()
        there = await living.backend.list_all()

        await patrol(copy)
        for sandbox_id in (deleted, paused, resumed, begun, created):
            await copy.settle(sandbox_id)
        await patrol(copy)

        assert (await copy.row(deleted)).state is State.FAILED
        assert "no longer has the sandbox" in (await copy.row(deleted)).state_reason
        assert (await copy.row(paused)).state is State.PAUSED
        for sandbox_id in (resumed, begun, created):
            row, known = await copy.row(sandbox_id), await living.row(sandbox_id)
            assert row.state is State.RUNNING
            assert row.backend_sandbox_id == known.backend_sandbox_id
        assert (await backend_row(copy)).strangers == 0
        by_id = sorted(await living.backend.list_all(), key=lambda one: one.id)
        assert [(one.id, one.state) for one in by_id] == sorted(
            (one.id, one.state) for one in there
        )


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
