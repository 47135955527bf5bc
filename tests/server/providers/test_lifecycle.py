import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from e2b import AsyncSandbox

from sandbox_server.domain.errors import BackendRefused
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.providers.protocol.provider import ReportedState
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def test_create__returns_both_ids(backend, wanted):
    access = await backend.create(wanted)
    [found] = await backend.find(wanted.sandbox_id)
    assert found == await backend.info(access.provider_id)
    assert found.id == access.provider_id
    assert found.sandbox_id == wanted.sandbox_id
    assert found.state is ReportedState.RUNNING
    assert found.started_at < datetime.now(UTC) < found.ends_at


async def test_create__the_provider_pauses_a_forgotten_sandbox_and_never_resumes_it(
    backend, wanted, engine
):
    access = await backend.create(wanted)
    told = await engine.ask(f"/sandboxes/{access.provider_id}")
    assert told["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}


async def test_create__variables_and_network_are_applied(backend, wanted):
    wanted = replace(wanted, envs={"GREETING": "hello"}, network={"deny_out": ["0.0.0.0/0"]})
    sandbox = backend.handle(await backend.create(wanted))
    assert (await sandbox.commands.run("echo $GREETING")).stdout == "hello\n"
    assert (await sandbox.get_info()).network["deny_out"] == ["0.0.0.0/0"]


async def test_create__a_repetition_returns_one_sandbox(backend, wanted):
    first, second = await asyncio.gather(backend.create(wanted), backend.create(wanted))
    assert first == second
    assert len(await backend.list_all()) == 1


async def test_find__two_sandboxes_with_our_id_are_returned_oldest_first(backend, wanted, options):
    labels = {
        wire.INSTALLATION: backend.installation_id,
        wire.SANDBOX: wanted.sandbox_id,
    }
    first = await AsyncSandbox.create(metadata=labels, **options)
    second = await AsyncSandbox.create(metadata=labels, **options)
    found = await backend.find(wanted.sandbox_id)
    assert [one.id for one in found] == [first.sandbox_id, second.sandbox_id]


async def test_resume__a_paused_sandbox_continues_its_processes(backend, wanted):
    access = await backend.create(wanted)
    job = await backend.handle(access).commands.run("sleep 1000", background=True)
    await backend.pause(access.provider_id)
    await backend.pause(access.provider_id)
    assert (await backend.info(access.provider_id)).state is ReportedState.PAUSED

    resumed = await backend.connect(access.provider_id, timeout=MINUTE)

    assert (await backend.info(access.provider_id)).state is ReportedState.RUNNING
    assert job.pid in {one.pid for one in await backend.handle(resumed).commands.list()}


async def test_connect__never_shortens_the_timeout_and_set_timeout_may(backend, wanted):
    access = await backend.create(replace(wanted, timeout=HOUR))
    before = await backend.info(access.provider_id)
    await backend.connect(access.provider_id, timeout=MINUTE)
    assert (await backend.info(access.provider_id)).ends_at == before.ends_at
    await backend.set_timeout(access.provider_id, MINUTE)
    assert (await backend.info(access.provider_id)).ends_at < before.ends_at


async def test_missing_sandbox__is_gone_for_every_call_and_kill_succeeds(backend, wanted):
    gone = (await backend.create(wanted)).provider_id
    await backend.kill(gone)
    await backend.kill(gone)
    for call in (
        backend.info(gone),
        backend.connect(gone, timeout=MINUTE),
        backend.pause(gone),
        backend.set_timeout(gone, MINUTE),
        backend.metrics(gone),
        backend.snapshot(gone),
    ):
        with pytest.raises(SandboxGone) as caught:
            await call
        assert caught.value.provider_id == gone
    assert await backend.find(wanted.sandbox_id) == []


async def test_list__contains_all_pages_of_this_installation_only(backend_at, new_sandbox):
    ours, theirs = backend_at(page=1), backend_at(installation_id="another")
    stranger = await theirs.create(new_sandbox())
    created = [await ours.create(new_sandbox()) for _ in range(3)]
    await ours.pause(created[0].provider_id)

    listed = await ours.list_all()
    await theirs.kill(stranger.provider_id)

    assert {one.id for one in listed} == {one.provider_id for one in created}
    assert [one.state for one in listed].count(ReportedState.PAUSED) == 1


async def test_snapshot__is_a_template_until_it_is_deleted(backend, wanted, new_sandbox):
    access = await backend.create(wanted)
    await backend.handle(access).files.write("kept", "as it was")
    snapshot_id = await backend.snapshot(access.provider_id)

    copy = await backend.create(new_sandbox(template=snapshot_id))

    assert await backend.handle(copy).files.read("kept") == "as it was"
    await backend.delete_snapshot(snapshot_id)
    await backend.delete_snapshot(snapshot_id)
    with pytest.raises(BackendRefused):
        await backend.create(new_sandbox(template=snapshot_id))


async def test_metrics__are_in_the_order_of_time(backend, wanted):
    access = await backend.create(wanted)
    told = await until(lambda: backend.metrics(access.provider_id), timeout=60, pause=0.1)
    assert told == sorted(told, key=lambda one: one.at)
    assert 0 < told[-1].memory_used <= told[-1].memory_total


async def test_is_running__is_true_only_while_it_runs(backend, wanted):
    access = await backend.create(wanted)
    assert await backend.is_answering(access)
    await backend.pause(access.provider_id)
    assert not await backend.is_answering(access)
    await backend.kill(access.provider_id)
    assert not await backend.is_answering(access)


async def test_port__has_a_host_name(backend, wanted, engine):
    access = await backend.create(wanted)
    assert backend.host(access, 3000) == f"3000-{access.provider_id}.{access.domain}"
