"""What becomes of our sandboxes, and of other people's, at providers that differ from E2B."""

import pytest

from sandbox_server.domain.errors import SnapshotFailed, StartRefused
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State, Target
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.protocol.errors import PauseConflict
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from tests.engine.polling import until
from tests.server.providers import stand_in_provider as api
from tests.server.providers.stand_in_provider import INSTALLATION, Dialect
from tests.server.sandboxes.drift.foreign_sandboxes import (
    AT_ONCE,
    FILTER_IGNORED,
    OTHERS,
    backend_row,
    others_at,
    patrol,
    settle_in_vain,
)


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
