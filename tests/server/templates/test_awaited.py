"""Sandboxes that are asked for while their template is being built."""

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
    """Ask for a sandbox of the tenant's own template, and do not wait."""

    async def ask(template="own", **fields):
        wanted = SandboxRequest(template=template, **fields)
        return await server.controller.create(server.caller, wanted, wait=AT_ONCE)

    return ask


@pytest.fixture
def under_way(building, server, sessions):
    """Have a template as it is just before its build is over; gives what its server does then."""

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


async def test_who_asks_while_it_is_built_has_it_once_it_is_ready(under_way, server, awaiting, api):
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


async def test_who_asks_for_more_than_it_turns_out_to_have_is_told(under_way, server, awaiting):
    end = await under_way(memory_mb=256)
    row = await awaiting(resources={"memory_mb": 512})
    await end()
    failed = await server.settled(row.id, State.FAILED)
    assert "Build a template with as much" in failed.state_reason


async def test_who_waits_for_what_is_deleted_is_told(building, server, awaiting, api):
    await building.ask(steps=[{"run": "sleep infinity"}])
    row = await awaiting()
    assert (await api.delete("/v1/templates/own")).status_code == 204
    failed = await server.settled(row.id, State.FAILED)
    assert "The template 'own' was deleted" in failed.state_reason


async def test_who_waits_may_be_deleted_and_stays_so(under_way, building, server, awaiting):
    end = await under_way()
    row, other = await awaiting(), await awaiting()
    await server.controller.delete(server.caller, row.id)
    await end()
    await server.settled(other.id, State.RUNNING)
    assert (await server.living.row(row.id)).state is State.STOPPED


async def test_a_build_that_ends_while_somebody_begins_to_wait_lets_that_one_in(
    under_way, server, sessions
):
    end = await under_way()
    creation, sandbox_id = server.controller._creation, new_id()
    async with sessions.begin() as session:
        wanted = SandboxRequest(template="own")
        begun = await creation.add(session, server.caller, wanted, sandbox_id=sandbox_id)
        assert begun.row.awaited_template_id is not None
        ending = asyncio.create_task(end())
        await asyncio.wait(
            [ending, asyncio.create_task(waiting_for_a_lock(sessions))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert not ending.done()
    creation.begin(begun)
    await ending
    await server.settled(sandbox_id, State.RUNNING)


async def test_who_waits_counts_among_those_that_the_tenant_may_have_wait(
    building, server, awaiting, api
):
    await server.set_tenant(max_queued=1)
    await building.ask(steps=[{"run": "sleep infinity"}])
    await awaiting()
    answer = await api.post("/v1/sandboxes", params={"wait": 0}, json={"template": "own"})
    assert answer.json()["code"] == "queue-full"


async def test_who_waits_too_long_is_let_go(building, server, awaiting):
    await building.ask(steps=[{"run": "sleep infinity"}])
    row = await awaiting(queue_timeout=MINUTE / 60)
    ended = await server.settled(row.id, State.STOPPED)
    assert "queue" in ended.state_reason


async def test_what_is_ready_stays_in_use_and_is_not_waited_for(building, server):
    await building.build()
    await building.again(from_template="base", steps=[{"run": "sleep infinity"}])
    assert (await server.create(template="own")).state is State.RUNNING
