"""What becomes of our sandboxes, and of other people's, at providers that differ from E2B."""

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError, ResumeFailed, SnapshotFailed, StartRefused
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.jobs.policy import Backoff
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.protocol.errors import AnswerLost, CallNotSupported, PauseConflict
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from sandbox_server.sandboxes.drift.liveness import LivenessTimeouts
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.providers import stand_in_provider as api
from tests.server.providers.stand_in_provider import INSTALLATION, PROFILES, Dialect, imitating
from tests.server.support.fault_proxy import answer_with, without_parameter
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import WISH, new_living

FILTER_IGNORED = Dialect(ignores_filter=True)
OTHERS = [
    {wire.INSTALLATION: "another-server", wire.SANDBOX: "somebodys", wire.TENANT: "theirs"},
    {"team": "blue"},
    None,
]
AT_ONCE = timedelta()
QUICK = replace(POLLING, backoff=Backoff(first=timedelta(milliseconds=1)))


@pytest.fixture
def at_provider(sessions):
    """Look after sandboxes at a provider of some dialect, which has other people's sandboxes too."""

    @asynccontextmanager
    async def at_provider(dialect):
        async with imitating(dialect) as provider:
            for metadata in OTHERS:
                provider.add(metadata)
            backend = provider.backend()
            try:
                yield await new_living(sessions, backend), provider
            finally:
                await backend.close()

    return at_provider


@pytest.fixture
def serving_at(at_provider, database):
    """Run a whole server's lifecycle at such a provider."""

    @asynccontextmanager
    async def serving_at(dialect):
        async with (
            at_provider(dialect) as (living, provider),
            running_server(database, living, policy=QUICK) as server,
        ):
            yield server, provider

    return serving_at


def others_at(provider):
    """List the sandboxes of others that are left, in the order of `OTHERS`."""
    theirs = list(provider.sandboxes.values())[: len(OTHERS)]
    return [one["metadata"] for one in theirs]


async def patrol(living):
    looking = living.drift_checker(
        intervals=CheckIntervals(again=AT_ONCE),
        timeouts=LivenessTimeouts(each=AT_ONCE, between=AT_ONCE, all=AT_ONCE),
    )
    job = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="imitated", attempts=1, leased_by="a")
    await looking.check(job)


async def backend_row(living):
    async with living.sessions() as session:
        return await BackendRepository(session).get("imitated")


async def settle_in_vain(living, sandbox_id, *, attempts):
    """Settle it as often as the queue does before it gives up, while the provider does not do it."""
    for attempt in range(1, attempts + 1):
        with suppress(BackendError):
            await living.settle(sandbox_id, attempt=attempt)


# Filters


@pytest.mark.parametrize("began", [True, False])
async def test_ignored_filter__an_uncertain_start_neither_kills_nor_adopts_foreign_sandboxes(
    at_provider, began
):
    async with at_provider(FILTER_IGNORED) as (living, provider):
        sandbox_id = await living.admitted()
        await living.change(sandbox_id, tried_at=await living.now())
        labels = {wire.INSTALLATION: INSTALLATION, wire.SANDBOX: sandbox_id}
        mine = provider.add(labels) if began else None

        found = await ProviderCalls(living.backends, living.vault).find(
            await living.row(sandbox_id)
        )

        assert (found and found.id) == mine
        assert others_at(provider) == OTHERS


async def test_ignored_filter__a_duplicate_is_killed(at_provider):
    async with at_provider(FILTER_IGNORED) as (living, provider):
        sandbox_id = await living.admitted()
        await living.change(sandbox_id, tried_at=await living.now())
        labels = {wire.INSTALLATION: INSTALLATION, wire.SANDBOX: sandbox_id}
        first, second = provider.add(labels), provider.add(labels)

        await living.settle(sandbox_id)

        assert first in provider.sandboxes
        assert second not in provider.sandboxes
        assert others_at(provider) == OTHERS


async def test_ignored_filter__deleting_after_a_lost_start_kills_no_foreign_sandbox(at_provider):
    async with at_provider(FILTER_IGNORED) as (living, provider):
        sandbox_id = await living.admitted()
        await living.change(sandbox_id, tried_at=await living.now())
        await living.want(sandbox_id, Target.GONE)

        await living.settle(sandbox_id)

        assert (await living.row(sandbox_id)).state is State.STOPPED
        assert others_at(provider) == OTHERS


async def test_ignored_filter__cleaning_up_after_a_failed_start_kills_no_foreign_sandbox(
    at_provider,
):
    async with at_provider(FILTER_IGNORED) as (living, provider):
        sandbox_id = await living.admitted()
        await living.change(sandbox_id, state=State.FAILED, ended_at=await living.now())

        await living.settle(sandbox_id)

        assert others_at(provider) == OTHERS


async def test_ignored_filter__the_patrol_ignores_foreign_sandboxes(at_provider):
    async with at_provider(FILTER_IGNORED) as (living, provider):
        sandbox_id = await living.started()
        copied = {
            wire.INSTALLATION: "another-server",
            wire.SANDBOX: sandbox_id,
            wire.TENANT: living.tenant_id,
        }
        copy = provider.add(copied)
        fresh = provider.add({**copied, wire.SANDBOX: new_id()})
        before = len(provider.sandboxes)

        await patrol(living)

        assert len(provider.sandboxes) == before
        assert {copy, fresh} <= set(provider.sandboxes)
        row = await backend_row(living)
        assert (row.state, row.strangers) == ("up", 0)
        assert (await living.row(sandbox_id)).state is State.RUNNING
        async with living.sessions() as session:
            assert len(await DriftRepository(session).list_living("imitated")) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tokens", ["repeated", "endless"])
async def test_endless_list__the_backend_is_down_with_the_reason(at_provider, tokens):
    async with at_provider(Dialect(tokens=tokens)) as (living, _):
        for _ in range(2):
            await patrol(living)
        row = await backend_row(living)
        assert row.state == "down"
        assert "list does not end" in row.state_reason


# Metadata


async def test_missing_metadata__starts_nothing_and_says_why(serving_at):
    async with serving_at(Dialect(drops_metadata=True)) as (server, provider):
        with pytest.raises(StartRefused, match="does not keep the metadata"):
            await server.create()
        assert len(provider.sandboxes) == len(OTHERS)


async def test_missing_metadata__a_sandbox_whose_labels_were_lost_does_not_fail(at_provider):
    async with at_provider(Dialect()) as (living, provider):
        sandbox_id = await living.started()
        provider_id = (await living.row(sandbox_id)).backend_sandbox_id
        provider.sandboxes[provider_id]["metadata"] = None

        await patrol(living)

        assert (await living.row(sandbox_id)).state is State.RUNNING
        assert provider_id in provider.sandboxes


# Routes


@pytest.mark.parametrize("engine_of", PROFILES)
async def test_missing_call__an_engine_without_our_create_says_so_and_loses_nothing(
    serving_at, engine_of
):
    async with serving_at(PROFILES[engine_of]) as (server, provider):
        with pytest.raises(StartRefused, match="does not support `POST /v2/sandboxes`"):
            await server.create()
        await patrol(server.living)
        assert others_at(provider) == OTHERS
        assert (await backend_row(server.living)).strangers == 0


async def test_missing_call__a_repeated_start_that_cannot_be_checked_is_retried(at_provider):
    async with at_provider(Dialect(lacks={api.INFO: 405})) as (living, provider):
        sandbox_id = await living.admitted()
        await living.change(sandbox_id, tried_at=await living.now())
        with pytest.raises(AnswerLost):
            await living.settle(sandbox_id)
        assert (await living.row(sandbox_id)).state is State.STARTING

        await living.settle(sandbox_id)

        row = await living.row(sandbox_id)
        assert row.state is State.RUNNING
        assert len(provider.sandboxes) == len(OTHERS) + 1


@pytest.mark.parametrize("status", [404, 405])
async def test_missing_call__without_resume_the_sandbox_stays_paused(serving_at, status):
    async with serving_at(Dialect(lacks={api.CONNECT: status})) as (server, provider):
        row = await server.paused()
        with pytest.raises(ResumeFailed, match="does not support `POST /v2/sandboxes/"):
            await server.controller.resume(server.caller, row.id)
        row = await server.living.row(row.id)
        assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
        assert provider.sandboxes[row.backend_sandbox_id]["state"] == "paused"


@pytest.mark.parametrize("status", [404, 405])
async def test_missing_call__without_delete_no_record_ends(at_provider, status):
    async with at_provider(Dialect(lacks={api.KILL: status})) as (living, provider):
        sandbox_id = await living.started()
        await living.want(sandbox_id, Target.GONE)

        await settle_in_vain(living, sandbox_id, attempts=10)

        row = await living.row(sandbox_id)
        assert row.state is State.STOPPING
        assert row.ended_at is None
        assert row.backend_sandbox_id in provider.sandboxes
        assert "Deletion failed and will be retried" in row.state_reason
        assert "does not support `DELETE /sandboxes/" in row.state_reason
        assert (await living.states(sandbox_id)).count("stopping") <= 2

        provider.dialect = Dialect()  # it was upgraded
        await living.settle(sandbox_id)

        assert (await living.row(sandbox_id)).state is State.STOPPED
        assert row.backend_sandbox_id not in provider.sandboxes


@pytest.mark.parametrize("status", [404, 405])
async def test_missing_call__a_delete_that_keeps_failing_becomes_a_dead_job_with_its_reason(
    serving_at, status
):
    async with serving_at(Dialect(lacks={api.KILL: status})) as (server, provider):
        row = await server.running()
        await server.controller.delete(server.caller, row.id, wait=AT_ONCE)

        async def is_dead():
            job = await server.living.job(kinds.SANDBOX, row.id)
            return job is not None and job.dead_at is not None

        await until(is_dead, timeout=60)
        job = await server.living.job(kinds.SANDBOX, row.id)
        assert "does not support `DELETE /sandboxes/" in job.last_error
        assert (await server.living.row(row.id)).state is State.STOPPING

        provider.dialect = Dialect()
        await server.controller.delete(server.caller, row.id)
        assert (await server.living.row(row.id)).state is State.STOPPED


@pytest.mark.parametrize("status", [404, 405])
async def test_missing_call__without_set_timeout_the_sandbox_runs_on_with_the_reason(
    at_provider, status
):
    async with at_provider(Dialect(lacks={api.TIMEOUT: status})) as (living, provider):
        sandbox_id = await living.started()
        await living.pass_time(sandbox_id, timedelta(minutes=10))

        await settle_in_vain(living, sandbox_id, attempts=3)

        row = await living.row(sandbox_id)
        assert row.state is State.RUNNING
        assert "timeout was not extended" in row.state_reason
        assert row.backend_sandbox_id in provider.sandboxes

        provider.dialect = Dialect()
        await living.settle(sandbox_id)

        assert (await living.row(sandbox_id)).state_reason == WISH.reason


async def test_provider_pause__extending_the_timeout_of_a_paused_sandbox_records_the_pause(
    at_provider,
):
    async with at_provider(Dialect()) as (living, provider):
        sandbox_id = await living.started()
        provider_id = (await living.row(sandbox_id)).backend_sandbox_id
        provider.sandboxes[provider_id]["state"] = "paused"
        await living.pass_time(sandbox_id, timedelta(minutes=10))

        await living.settle(sandbox_id)

        assert (await living.row(sandbox_id)).state is State.PAUSED


async def test_missing_call__without_pause_the_sandbox_runs_on_with_the_reason(at_provider):
    async with at_provider(Dialect(lacks={api.PAUSE: 404})) as (living, _):
        sandbox_id = await living.started()
        await living.want(sandbox_id, Target.PAUSED)
        with pytest.raises(CallNotSupported):
            await living.settle(sandbox_id)
        row = await living.row(sandbox_id)
        assert (row.state, row.target) == (State.RUNNING, Target.PAUSED)
        assert "does not support `POST /sandboxes/" in row.state_reason


async def test_missing_call__missing_metrics_do_not_mean_a_missing_sandbox(serving_at):
    async with serving_at(Dialect(lacks={api.METRICS: 404})) as (server, _):
        row = await server.running()
        with pytest.raises(CallNotSupported):
            await server.controller.metrics(server.caller, row.id)


async def test_metrics__a_paused_sandbox_has_none(serving_at):
    async with serving_at(Dialect()) as (server, provider):
        row = await server.paused()
        provider.hidden_from.add(api.METRICS)
        assert await server.controller.metrics(server.caller, row.id) == []


async def test_gateway__a_404_without_a_route_fails_no_sandbox(at_provider):
    """As an ingress does whose routes are being set up."""
    async with at_provider(Dialect()) as (living, provider):
        running, paused = await living.started(), await living.paused()
        everything = (api.LIST, api.INFO, api.CONNECT, api.PAUSE, api.TIMEOUT, api.KILL)
        provider.dialect = Dialect(lacks=dict.fromkeys(everything, 404))
        await living.pass_time(running, timedelta(minutes=10))
        await living.want(paused, Target.RUNNING)
        await living.let_in(paused)

        for _ in range(2):
            await patrol(living)
        for one in (running, paused):
            with pytest.raises(BackendError):
                await living.settle(one)

        assert (await backend_row(living)).state == "down"
        assert (await living.row(running)).state is State.RUNNING
        assert (await living.row(paused)).state in {State.RESUMING, State.PAUSED}


async def test_missing_sandbox__a_404_that_does_not_name_the_sandbox_is_verified(at_provider):
    async with at_provider(Dialect(names_what_is_missing=False)) as (living, provider):
        sandbox_id = await living.started()
        del provider.sandboxes[(await living.row(sandbox_id)).backend_sandbox_id]

        await patrol(living)

        assert (await living.row(sandbox_id)).state is State.FAILED


# Conflicts


async def test_conflict__does_not_count_as_a_pause_and_ends_as_a_refusal(at_provider):
    """k8e: 409 where there is no volume to pause to."""
    async with at_provider(Dialect(refuses_pause="no volume")) as (living, provider):
        sandbox_id = await living.started()
        await living.want(sandbox_id, Target.PAUSED)
        with pytest.raises(PauseConflict):
            await living.settle(sandbox_id)
        row = await living.row(sandbox_id)
        assert row.state is State.PAUSING
        assert provider.sandboxes[row.backend_sandbox_id]["state"] == "running"

        await settle_in_vain(living, sandbox_id, attempts=10)

        row = await living.row(sandbox_id)
        assert (row.state, row.target) == (State.RUNNING, Target.PAUSED)
        assert "no volume" in row.state_reason


async def test_conflict__a_temporary_one_is_waited_for(serving_at):
    """In infra sandbox_pause.go:69-81: another transition is under way."""
    async with serving_at(Dialect(refuses_pause="in another transition")) as (server, provider):
        row = await server.running()
        await server.controller.pause(server.caller, row.id, wait=AT_ONCE)

        async def was_refused():
            return sum(one.endswith("/pause") for one in provider.requests) > 1

        await until(was_refused, timeout=60)
        assert (await server.living.row(row.id)).state is not State.PAUSED
        provider.dialect = Dialect()
        await server.settled(row.id, State.PAUSED)
        assert provider.sandboxes[row.backend_sandbox_id]["state"] == "paused"


# Snapshots


@pytest.mark.parametrize("status", [404, 405])
async def test_snapshot__a_failed_one_deletes_no_foreign_snapshot(serving_at, status):
    """As openkruise list.go:247: `name` is ignored, the answer has everybody's snapshots."""
    dialect = Dialect(ignores_snapshot_name=True, lacks={api.SNAPSHOT: status})
    async with serving_at(dialect) as (server, provider):
        theirs = {"team/theirs:default": ["team/theirs:default"], "checkpoint-of-another": None}
        provider.snapshots |= theirs
        source = await server.running()
        with pytest.raises(SnapshotFailed, match="does not support `POST /sandboxes/"):
            await server.copies.create(server.caller, source.id)
        [row] = await server.snapshots()

        await server.copies.delete(server.caller, row.id)

        async def is_removed():
            return not await server.snapshots()

        await until(is_removed, timeout=60)
        assert provider.snapshots == theirs
        assert (await server.living.row(source.id)).state is State.RUNNING


async def test_snapshot__a_lost_answer_deletes_only_its_own_snapshot(serving_at):
    dialect = Dialect(ignores_snapshot_name=True)
    async with serving_at(dialect) as (server, provider):
        source = await server.running()
        row = await server.copies.create(server.caller, source.id)
        theirs = {"team/theirs:default": ["team/theirs:default"]}
        provider.snapshots = theirs | provider.snapshots
        async with server.living.sessions.begin() as session:
            kept = await session.get(type(row), row.id)
            kept.backend_snapshot_id = None

        await server.copies.delete(server.caller, row.id)

        async def is_removed():
            return not await server.snapshots()

        await until(is_removed, timeout=60)
        assert provider.snapshots == theirs


# The real engine behind a gateway that differs

ALWAYS = 1000
NO_ROUTE = [
    pytest.param(answer_with(404, "404 page not found\n"), id="404"),
    pytest.param(answer_with(405), id="405"),
]


@pytest.mark.needs_engine
async def test_real_engine__without_a_filter_no_foreign_sandbox_is_lost(
    faulty, proxy, backend_at, new_sandbox
):
    theirs = backend_at(installation_id=new_id())
    stranger = await theirs.create(new_sandbox())
    proxy.on(api.LIST, without_parameter("metadata"), times=ALWAYS)
    in_doubt, deleted = await faulty.admitted(), await faulty.admitted()
    for sandbox_id in (in_doubt, deleted):
        await faulty.change(sandbox_id, tried_at=await faulty.now())
    await faulty.want(deleted, Target.GONE)

    await faulty.settle(in_doubt)
    await faulty.settle(deleted)

    assert (await faulty.row(in_doubt)).state is State.RUNNING
    assert (await faulty.row(deleted)).state is State.STOPPED
    left = await theirs.list_all()
    for one in left:
        await theirs.kill(one.id)
    assert [one.id for one in left] == [stranger.provider_id]


@pytest.mark.needs_engine
@pytest.mark.parametrize("missing", NO_ROUTE)
async def test_real_engine__without_resume_the_sandbox_stays_paused(faulty, proxy, missing):
    sandbox_id = await faulty.paused()
    proxy.on("POST /v2/sandboxes/", missing, times=ALWAYS)
    await faulty.want(sandbox_id, Target.RUNNING)
    await faulty.let_in(sandbox_id)

    await faulty.settle(sandbox_id)

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert "does not support `POST /v2/sandboxes/" in row.state_reason
    assert await faulty.provider_states() == ["paused"]


@pytest.mark.needs_engine
@pytest.mark.parametrize("missing", NO_ROUTE)
async def test_real_engine__without_kill_no_record_ends(faulty, proxy, missing):
    sandbox_id = await faulty.started()
    proxy.on("DELETE /sandboxes/", missing)
    await faulty.want(sandbox_id, Target.GONE)
    with pytest.raises(CallNotSupported):
        await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.STOPPING
    assert await faulty.provider_states() == ["running"]

    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.STOPPED
    assert await faulty.provider_states() == []


@pytest.mark.needs_engine
async def test_real_engine__a_sandbox_in_another_transition_is_paused_afterwards(faulty, proxy):
    sandbox_id = await faulty.started()
    proxy.on("POST /sandboxes/", answer_with(409, '{"code": 409, "message": "snapshotting"}'))
    await faulty.want(sandbox_id, Target.PAUSED)
    with pytest.raises(PauseConflict, match="snapshotting"):
        await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.PAUSING
    assert await faulty.provider_states() == ["running"]

    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.PAUSED
    assert await faulty.provider_states() == ["paused"]
