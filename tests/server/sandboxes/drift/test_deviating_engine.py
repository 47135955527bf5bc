"""The real engine behind a gateway that deviates from E2B."""

import pytest

from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State, Target
from sandbox_server.providers.protocol.errors import CallNotSupported, PauseConflict
from tests.server.providers import stand_in_provider as api
from tests.server.support.fault_proxy import answer_with, without_parameter

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
