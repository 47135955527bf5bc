import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import (
    IdempotencyMismatch,
    InvalidRequest,
    InvalidTransition,
    QueueFull,
    SandboxNotFound,
    StartFailed,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import OnTimeout, State, Target
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter
from sandbox_server.sandboxes.services.encrypted_columns import open_envs
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.in_process_server import caller_of, running_server
from tests.server.support.managed_sandboxes import HOUR, MINUTE

pytestmark = pytest.mark.needs_engine

NOTHING = timedelta()
BASE = SandboxRequest(template="base")


def request(key="key", **body):
    return Idempotency.of(key, method="POST", path="/v1/sandboxes", body=body)


async def test_create__the_sandbox_runs_as_requested(server):
    row = await server.create(
        agent_type="coder",
        user_id="ada",
        session_id="one",
        metadata={"team": "red"},
        envs={"GREETING": "hello"},
        mcp_servers={"git": {"url": "http://git"}},
        timeout=HOUR,
        idle_timeout=MINUTE,
        on_timeout=OnTimeout.DELETE,
        auto_resume=False,
    )
    assert (row.state, row.backend, row.template) == (State.RUNNING, "local", "base")
    assert (row.agent_type, row.user_id, row.session_id) == ("coder", "ada", "one")
    assert (row.labels, row.auto_resume) == ({"team": "red"}, False)
    assert (row.timeout, row.idle_timeout, row.on_timeout) == (HOUR, MINUTE, OnTimeout.DELETE)
    assert open_envs(server.living.vault, row.id, row.envs_sealed) == {
        "envs": {"GREETING": "hello"},
        "mcp_servers": {"git": {"url": "http://git"}},
    }
    assert await server.living.states(row.id) == ["starting", "running"]
    for event in await server.living.events(row.id):
        assert (event.data["cause"], event.data["actor"]["id"]) == ("request", server.caller.key_id)


async def test_create__the_tenants_defaults_apply_to_omitted_fields(server):
    await server.set_tenant(defaults={"template": "base", "timeout_s": 120, "on_timeout": "delete"})
    row = await server.controller.create(server.caller, SandboxRequest(timeout=HOUR))
    assert (row.template, row.timeout, row.on_timeout) == ("base", HOUR, OnTimeout.DELETE)
    row = await server.controller.create(server.caller, SandboxRequest())
    assert row.timeout == 2 * MINUTE


async def test_create__the_priority_is_limited_by_the_key(server):
    caller = caller_of(server.living.tenant_id, max_priority=5)
    for asked, got in ((9, 5), (3, 3), (-1, -1)):
        row = await server.controller.create(
            caller, SandboxRequest(template="base", priority=asked), wait=NOTHING
        )
        assert row.priority == got


async def test_create__a_refused_one_fails_with_a_reason(server):
    with pytest.raises(StartFailed, match="no-such-tag"):
        await server.create(template="base:no-such-tag")
    [row] = await server.controller.list_page(
        server.caller, SandboxFilter(states=frozenset(State)), limit=10
    )
    assert row.state is State.FAILED
    assert "no-such-tag" in row.state_reason


async def test_create__without_a_slot_it_is_queued_and_starts_later(server):
    await server.set_capacity(1)
    first = await server.running()
    second = await server.controller.create(server.caller, BASE, wait=NOTHING)
    assert await server.living.states(second.id) == ["queued"]

    await server.controller.delete(server.caller, first.id)

    assert (await server.controller.connect(server.caller, second.id)).state is State.RUNNING
    assert await server.living.states(second.id) == ["queued", "starting", "running"]


async def test_create__a_full_queue_refuses_and_stores_nothing(server):
    await server.set_tenant(max_queued=1)
    await server.queued()
    with pytest.raises(QueueFull):
        await server.queued()
    assert len(await server.controller.list_page(server.caller, SandboxFilter(), limit=10)) == 1


async def test_create__an_expired_request_ends_with_a_reason(server):
    await server.set_capacity(0)
    with pytest.raises(StartFailed, match="Queue timeout"):
        await server.create(queue_timeout=timedelta(milliseconds=10))


async def test_delete__cancels_a_queued_sandbox(server):
    row = await server.queued()
    gone = await server.controller.delete(server.caller, row.id)
    assert (gone.state, gone.state_reason) == (State.STOPPED, "Deleted by API request.")
    assert await server.living.states(row.id) == ["queued", "stopped"]


async def test_create__continues_when_the_caller_disconnects(database, living):
    # What it had taken is another's once the lease lapses.
    policy = replace(POLLING, lease=timedelta(seconds=2))
    async with running_server(database, living, policy=policy) as server:
        await _leave(server)


async def _leave(server):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # after the commit or before, as it happens
            await server.create(session_id="left")
    row = await server.controller.find_or_create(server.caller, "left", BASE)
    assert row.row.state is State.RUNNING
    assert len(await server.living.backend.list_all()) == 1


async def test_pause__keeps_the_state_for_the_resume(server):
    row = await server.running()
    paused = await server.controller.pause(server.caller, row.id)
    assert (paused.state, paused.expires_at) == (State.PAUSED, None)
    resumed = await server.controller.resume(server.caller, row.id)
    assert (resumed.state, resumed.remaining) == (State.RUNNING, None)
    assert await server.living.states(row.id) == [
        *("starting", "running", "pausing", "paused", "resuming", "running"),
    ]


async def test_pause__repeating_it_changes_nothing(server):
    controller, caller = server.controller, server.caller
    row = await server.running()
    await controller.resume(caller, row.id)
    await controller.pause(caller, row.id)
    before = await controller.get(caller, row.id)
    await controller.pause(caller, row.id)
    paused = await controller.get(caller, row.id)
    assert (paused.wanted, paused.generation) == (before.wanted, before.generation)
    await controller.delete(caller, row.id)
    gone = await controller.delete(caller, row.id)
    assert gone.state is State.STOPPED
    assert await server.living.states(row.id) == [
        *("starting", "running", "pausing", "paused", "stopping", "stopped"),
    ]
    assert await server.living.provider_states() == []


async def test_resume__an_ended_sandbox_cannot_be_resumed(server):
    controller, caller = server.controller, server.caller
    row = await server.running()
    await controller.delete(caller, row.id)
    for call in (
        controller.pause(caller, row.id),
        controller.resume(caller, row.id),
        controller.connect(caller, row.id),
        controller.set_timeout(caller, row.id, HOUR),
        controller.use(caller, row.id),
        server.copies.create(caller, row.id),
    ):
        with pytest.raises(InvalidTransition, match="stopped sandbox"):
            await call
    other = await server.running()
    await server.living.change(other.id, target=Target.GONE)
    with pytest.raises(InvalidTransition, match="stopping sandbox"):
        await controller.resume(caller, other.id)


async def test_get__another_tenants_sandbox_is_not_found(server):
    row = await server.running()
    controller, stranger = server.controller, caller_of(new_id())
    for call in (
        controller.get(stranger, row.id),
        controller.pause(stranger, row.id),
        controller.resume(stranger, row.id),
        controller.delete(stranger, row.id),
        controller.connect(stranger, row.id),
        controller.update(stranger, row.id, {"metadata": {}}),
        controller.keep_awake(stranger, row.id, awake_for=HOUR),
        controller.use(stranger, row.id),
        controller.metrics(stranger, row.id),
        server.copies.create(stranger, row.id),
    ):
        with pytest.raises(SandboxNotFound):
            await call
    assert (await server.living.row(row.id)).generation == row.generation


async def test_resume__waits_for_a_slot_like_a_start(server):
    first, _ = await server.paused(), await server.set_capacity(1)
    second = await server.running()
    waiting = await server.controller.resume(server.caller, first.id, wait=NOTHING)
    assert (waiting.state, waiting.target) == (State.PAUSED, Target.RUNNING)

    await server.controller.delete(server.caller, second.id)

    assert (await server.controller.resume(server.caller, first.id)).state is State.RUNNING


async def test_pause__cancels_a_queued_resume(server):
    row = await server.paused()
    await server.set_capacity(0)
    await server.controller.resume(server.caller, row.id, wait=NOTHING)
    paused = await server.controller.pause(server.caller, row.id)
    assert (paused.state, paused.target) == (State.PAUSED, Target.PAUSED)


async def test_idempotency__the_same_request_and_key_return_the_same_sandbox(server):
    create = server.controller.create
    rows = await asyncio.gather(
        *(create(server.caller, BASE, idempotency=request(), wait=MINUTE) for _ in range(20))
    )
    assert {row.state for row in rows} == {State.RUNNING}
    assert len({row.id for row in rows}) == len(await server.living.backend.list_all()) == 1
    with pytest.raises(IdempotencyMismatch):
        await create(server.caller, BASE, idempotency=request(template="base"))


async def test_idempotency__fifty_duplicates_at_two_servers_create_one_sandbox(server, replica):
    await server.set_capacity(0)
    created = await asyncio.gather(
        *(
            one.controller.create(one.caller, BASE, idempotency=request(), wait=NOTHING)
            for one in (server, replica) * 25
        )
    )
    assert len({row.id for row in created}) == 1
    assert len(await server.controller.list_page(server.caller, SandboxFilter(), limit=99)) == 1


async def test_target__of_opposite_concurrent_requests_the_last_wins(server, replica):
    row = await server.running()
    calls = [
        getattr(one.controller, verb)(one.caller, row.id, wait=NOTHING)
        for one in (server, replica)
        for verb in ("pause", "resume") * 5
    ]
    await asyncio.gather(*calls)
    last = await server.controller.resume(replica.caller, row.id, wait=MINUTE)
    assert last.state is State.RUNNING
    assert await server.living.provider_states() == ["running"]


async def test_priority__changes_only_while_queued(server):
    row = await server.queued()
    caller = caller_of(server.living.tenant_id, max_priority=5)
    changed = await server.controller.update(caller, row.id, {"priority": 9})
    assert changed.priority == 5
    await server.set_capacity(1)
    await server.controller.connect(caller, row.id, wait=NOTHING)
    await server.living.change(row.id, state=State.RUNNING)
    with pytest.raises(InvalidRequest, match="priority"):
        await server.controller.update(caller, row.id, {"priority": 1})
