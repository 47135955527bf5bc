"""Sandboxes requested while their template is being built."""

import asyncio

import pytest
from sqlalchemy import update

from sandbox_server.db.models import TemplateBuild
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from tests.server.support.locks import waiting_for_a_lock
from tests.server.support.managed_sandboxes import MINUTE

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]

AT_ONCE = 0 * MINUTE


@pytest.fixture
def awaiting(server):
    """Request a sandbox of the tenant's own template without waiting."""

    async def ask(template="own", **fields):
        wanted = SandboxRequest(template=template, **fields)
        return await server.controller.create(server.caller, wanted, wait=AT_ONCE)

    return ask


@pytest.fixture
def under_way(building, server, sessions):
    """Set up a build that is about to end; returns the function that ends it."""

    async def set_under_way(**fields):
        await building.build(**fields)
        template_id = await set_build(sessions, state="building", ready_at=None)

        async def end():
            await set_build(sessions, state="ready", ready_at=await server.living.now())
            async with sessions.begin() as session:
                await JobRepository(session).due(TEMPLATE_BUILD, f"{template_id}/local")

        return end

    return set_under_way


async def set_build(sessions, **columns):
    async with sessions.begin() as session:
        changed = update(TemplateBuild).values(**columns)
        return await session.scalar(changed.returning(TemplateBuild.template_id))


async def test_template_builds__a_sandbox_requested_during_the_build_starts_when_it_is_ready(
    under_way, server, awaiting, api
):
    end = await under_way(steps=[{"run": "echo here > ~/proof"}], memory_mb=256)
    row = await awaiting()
    assert (row.state, row.candidates, row.awaited_backends) == (State.QUEUED, [], ["local"])
    told = (await api.get(f"/v1/sandboxes/{row.id}")).json()
    assert told["queue"]["reason"] == "The template 'own' is being built at local."
    await end()
    running = await server.settled(row.id, State.RUNNING)
    assert (running.awaited_template_id, running.candidates) == (None, ["local"])
    assert running.resources["memory_mb"] == 256
    inside = await server.living.inside(row.id)
    assert (await inside.commands.run("cat ~/proof")).stdout == "here\n"


async def test_template_builds__a_waiting_sandbox_with_too_large_resources_fails(
    under_way, server, awaiting
):
    end = await under_way(memory_mb=256)
    row = await awaiting(resources={"memory_mb": 512})
    await end()
    failed = await server.settled(row.id, State.FAILED)
    assert "Build a template of the requested size" in failed.state_reason


async def test_template_builds__deleting_the_template_fails_waiting_sandboxes(
    building, server, awaiting, api
):
    await building.ask(steps=[{"run": "sleep infinity"}])
    row = await awaiting()
    assert (await api.delete("/v1/templates/own")).status_code == 204
    failed = await server.settled(row.id, State.FAILED)
    assert "The template 'own' was deleted" in failed.state_reason


async def test_template_builds__a_waiting_sandbox_can_be_deleted(
    under_way, building, server, awaiting
):
    end = await under_way()
    row, other = await awaiting(), await awaiting()
    await server.controller.delete(server.caller, row.id)
    await end()
    await server.settled(other.id, State.RUNNING)
    assert (await server.living.row(row.id)).state is State.STOPPED


async def test_template_builds__a_build_that_ends_during_the_create_admits_the_sandbox(
    under_way, server, sessions
):
    end = await under_way()
    creation, sandbox_id = server.controller._creation, new_id()
    async with sessions.begin() as session:
        wanted = SandboxRequest(template="own")
        added = await creation.add(session, server.caller, wanted, sandbox_id=sandbox_id)
        assert added.row.awaited_template_id is not None
        ending = asyncio.create_task(end())
        await asyncio.wait(
            [ending, asyncio.create_task(waiting_for_a_lock(sessions))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert not ending.done()
    creation.begin(added)
    await ending
    await server.settled(sandbox_id, State.RUNNING)


async def test_template_builds__waiting_sandboxes_count_against_the_queue_quota(
    building, server, awaiting, api
):
    await server.set_tenant(max_queued=1)
    await building.ask(steps=[{"run": "sleep infinity"}])
    await awaiting()
    answer = await api.post("/v1/sandboxes", params={"wait": 0}, json={"template": "own"})
    assert answer.json()["code"] == "queue-full"


async def test_template_builds__waiting_sandboxes_fail_after_the_maximum_wait(
    building, server, awaiting
):
    await building.ask(steps=[{"run": "sleep infinity"}])
    row = await awaiting(queue_timeout=MINUTE / 60)
    ended = await server.settled(row.id, State.STOPPED)
    assert "Queue timeout" in ended.state_reason


async def test_template_builds__a_rebuild_does_not_delay_sandboxes(building, server):
    await building.build()
    await building.again(from_template="base", steps=[{"run": "sleep infinity"}])
    assert (await server.create(template="own")).state is State.RUNNING
