"""What becomes of sandboxes at providers that lack a call."""

from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError, ResumeFailed, StartRefused
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.providers.protocol.errors import AnswerLost, CallNotSupported
from tests.engine.polling import until
from tests.server.providers import stand_in_provider as api
from tests.server.providers.stand_in_provider import PROFILES, Dialect
from tests.server.sandboxes.drift.foreign_sandboxes import (
    AT_ONCE,
    OTHERS,
    backend_row,
    others_at,
    patrol,
    settle_in_vain,
)
from tests.server.support.managed_sandboxes import WISH


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
