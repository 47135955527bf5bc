import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.db.models import Snapshot
from sandbox_server.domain.errors import (
    NotReady,
    SnapshotFailed,
    SnapshotNotFound,
    StartFailed,
    TemplateNotFound,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import ForkRequest, Idempotency, SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import SNAPSHOT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.queue.view import describe_queue
from sandbox_server.sandboxes.services.encrypted_columns import open_envs
from sandbox_server.snapshots.repository import SnapshotRepository
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.fault_proxy import hold, lose_answer
from tests.server.support.in_process_server import caller_of, running_server
from tests.server.support.managed_sandboxes import HOUR, MINUTE

pytestmark = pytest.mark.needs_engine

NOTHING = timedelta()
IMPATIENT = replace(POLLING, grace=NOTHING)
AS_IT_IS = ForkRequest()


async def files(server, row):
    used = await server.controller.use(server.caller, row.id)
    return used.backend.handle(used.access).files


async def with_file(server, **fields):
    row = await server.running(**fields)
    await (await files(server, row)).write("kept", "as it was")
    return row


async def no_snapshots_left(server):
    async def gone():
        return not await server.snapshots()

    await until(gone, timeout=60)


async def test_snapshot__is_a_template_that_outlives_its_sandbox(server):
    controller, caller = server.controller, server.caller
    source = await with_file(server)
    snapshot = await server.copies.create(caller, source.id, name="before lunch")
    assert (snapshot.state, snapshot.name) == ("ready", "before lunch")
    await controller.delete(caller, source.id)

    row = await server.running(template=snapshot.id)

    assert row.template == snapshot.id
    assert await (await files(server, row)).read("kept") == "as it was"
    assert [one.id for one in await list_snapshots(server)] == [snapshot.id]


async def list_snapshots(server, caller=None):
    return await server.copies.list_page(
        caller or server.caller, sandbox_id=None, limit=10, before=None
    )


async def test_snapshot__another_tenants_is_neither_template_nor_visible(server):
    snapshot = await server.copies.create(server.caller, (await server.running()).id)
    await server.add_tenant(other := new_id())
    stranger = caller_of(other)
    with pytest.raises(TemplateNotFound):
        await server.controller.create(stranger, SandboxRequest(template=snapshot.id))
    for call in (
        server.copies.get(stranger, snapshot.id),
        server.copies.delete(stranger, snapshot.id),
    ):
        with pytest.raises(SnapshotNotFound):
            await call
    assert await list_snapshots(server, stranger) == []


async def test_snapshot__a_deleted_one_is_removed_after_its_last_sandbox(server):
    snapshot = await server.copies.create(server.caller, (await server.running()).id)
    row = await server.running(template=snapshot.id)

    await server.copies.delete(server.caller, snapshot.id)
    assert await list_snapshots(server) == []
    assert [one.state for one in await server.snapshots()] == ["deleting"]

    await server.controller.delete(server.caller, row.id)
    await no_snapshots_left(server)
    assert await server.living.backend.find_snapshot(snapshot.id) is None
    assert await server.living.job(SNAPSHOT, snapshot.id) is None


async def test_snapshot__needs_a_sandbox_that_is_started_and_not_ended(server):
    row = await server.queued()
    with pytest.raises(NotReady):
        await server.copies.create(server.caller, row.id)
    await server.set_capacity(9)
    row = await server.running()
    await server.living.backend.kill(row.backend_sandbox_id)
    with pytest.raises(SnapshotFailed, match="no sandbox"):
        await server.copies.create(server.caller, row.id)
    [snapshot] = await server.snapshots()
    assert snapshot.state == "failed"
    await server.copies.delete(server.caller, snapshot.id)
    await no_snapshots_left(server)


async def test_fork__has_the_sources_files_and_settings_and_its_own_lifecycle(server):
    source = await with_file(
        server, user_id="ada", session_id="one", metadata={"a": "b"}, envs={"X": "y"}, timeout=HOUR
    )
    fork = await server.copies.fork(
        server.caller, source.id, ForkRequest(metadata={"c": "d"}, timeout=MINUTE), wait=MINUTE
    )
    assert fork.state is State.RUNNING
    assert (fork.user_id, fork.session_id, fork.labels) == ("ada", None, {"c": "d"})
    assert fork.timeout == MINUTE
    assert open_envs(server.living.vault, fork.id, fork.envs_sealed) == {"envs": {"X": "y"}}
    await (await files(server, fork)).write("kept", "another")
    assert await (await files(server, source)).read("kept") == "as it was"


async def test_fork__its_base_is_not_listed_and_is_removed_with_it(server):
    source = await server.running()
    fork = await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=MINUTE)
    [snapshot] = await server.snapshots()
    assert await list_snapshots(server) == []

    await server.controller.delete(server.caller, fork.id)

    await no_snapshots_left(server)
    assert await server.living.backend.find_snapshot(snapshot.id) is None


async def test_fork__a_paused_source_stays_paused(server):
    source = await server.paused()
    fork = await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=MINUTE)
    assert fork.state is State.RUNNING
    assert (await server.living.row(source.id)).state is State.PAUSED


async def test_fork__a_failed_copy_fails_the_fork_and_leaves_nothing(server):
    source = await server.running()
    await server.living.backend.kill(source.backend_sandbox_id)
    with pytest.raises(StartFailed, match="no sandbox"):
        await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=MINUTE)
    await no_snapshots_left(server)


async def test_fork__a_repetition_with_one_key_is_one_fork(server, replica):
    source = await server.running()
    name = Idempotency.of("key", method="POST", path=f"/{source.id}/fork", body={})
    forks = await asyncio.gather(
        *(
            one.copies.fork(one.caller, source.id, AS_IT_IS, idempotency=name, wait=MINUTE)
            for one in (server, replica) * 5
        )
    )
    assert {one.state for one in forks} == {State.RUNNING}
    assert len({one.id for one in forks}) == len(await server.snapshots()) == 1
    assert len(await server.living.backend.list_all()) == 2


async def test_fork__reports_that_its_copy_is_being_taken(database, living, faulty, proxy):
    async with running_server(database, faulty, policy=IMPATIENT) as server:
        source = await server.running()
        proxy.on(f"POST /sandboxes/{source.backend_sandbox_id}/snapshots", hold)
        fork = await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=NOTHING)
        async with living.sessions() as session:
            view = await describe_queue(session, fork)
        assert view
        assert "Waiting for the snapshot" in view.reason
        gone = await server.controller.delete(server.caller, fork.id)
        assert gone.state is State.STOPPED


async def test_fork__one_deleted_before_it_starts_leaves_nothing(server):
    source = await server.running()
    await server.set_capacity(0)
    fork = await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=NOTHING)
    await server.controller.delete(server.caller, fork.id)
    await no_snapshots_left(server)


async def test_fork__a_copy_with_a_lost_answer_is_taken_again_under_its_name(
    database, living, faulty, proxy
):
    async with running_server(database, faulty) as server:
        source = await with_file(server)
        proxy.on(f"POST /sandboxes/{source.backend_sandbox_id}/snapshots", lose_answer)
        fork = await server.copies.fork(server.caller, source.id, AS_IT_IS, wait=MINUTE)
        assert await (await files(server, fork)).read("kept") == "as it was"
        await server.controller.delete(server.caller, fork.id)
        await no_snapshots_left(server)


@pytest.mark.parametrize("was_taken", [False, True])
async def test_fork__another_server_finishes_the_fork_of_a_dead_one(database, living, was_taken):
    source = await living.row(await living.started())
    snapshot_id = new_id()
    fork_id = await living.queued(template=snapshot_id)
    await living.change(fork_id, candidates=[])
    if was_taken:
        await living.backend.snapshot(source.backend_sandbox_id, name=snapshot_id)
    async with living.sessions.begin() as session:
        await SnapshotRepository(session).add(
            Snapshot(
                id=snapshot_id,
                tenant_id=living.tenant_id,
                sandbox_id=source.id,
                backend="local",
                temporary=True,
            )
        )
        await JobRepository(session).due(SNAPSHOT, snapshot_id)
    async with running_server(database, living) as server:
        await server.settled(fork_id, State.RUNNING)
        await server.controller.delete(server.caller, fork_id)
        await no_snapshots_left(server)
        assert await living.backend.find_snapshot(snapshot_id) is None


async def test_snapshot__another_server_finishes_the_deletion_of_a_dead_one(database, living):
    source = await living.row(await living.started())
    snapshot_id = new_id()
    await living.backend.snapshot(source.backend_sandbox_id, name=snapshot_id)
    async with living.sessions.begin() as session:
        await SnapshotRepository(session).add(
            Snapshot(
                id=snapshot_id,
                tenant_id=living.tenant_id,
                sandbox_id=source.id,
                backend="local",
                state="deleting",
            )
        )
        await JobRepository(session).due(SNAPSHOT, snapshot_id)
    async with running_server(database, living) as server:
        await no_snapshots_left(server)
    assert await living.backend.find_snapshot(snapshot_id) is None
