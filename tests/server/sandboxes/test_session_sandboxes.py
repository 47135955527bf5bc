import asyncio
from datetime import timedelta

import pytest

from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter
from tests.server.support.in_process_server import caller_of
from tests.server.support.managed_sandboxes import HOUR, MINUTE

pytestmark = pytest.mark.needs_engine

BASE = SandboxRequest(template="base")


async def find_or_create(server, session_id="one", wanted=BASE, *, wait=MINUTE):
    return await server.controller.find_or_create(server.caller, session_id, wanted, wait=wait)


async def test_session__has_one_sandbox_from_its_first_use(server):
    first = await find_or_create(server)
    again = await find_or_create(server)
    assert (first.created, again.created) == (True, False)
    assert first.row.id == again.row.id
    assert first.row.session_id == "one"
    assert (await find_or_create(server, "two")).row.id != first.row.id


async def test_session__fifty_calls_at_two_servers_create_one_sandbox(server, replica):
    found = await asyncio.gather(*(find_or_create(one) for one in (server, replica) * 25))
    assert len({one.row.id for one in found}) == 1
    assert sum(one.created for one in found) == 1
    assert {one.row.state for one in found} == {State.RUNNING}
    assert len(await server.living.backend.list_all()) == 1


async def test_session__fifty_calls_resume_once(server, replica):
    row = await server.paused(session_id="one")
    found = await asyncio.gather(*(find_or_create(one) for one in (server, replica) * 25))
    assert {one.row.id for one in found} == {row.id}
    assert {one.row.state for one in found} == {State.RUNNING}
    assert (await server.living.states(row.id)).count("resuming") == 1


async def test_session__gets_a_new_sandbox_after_the_end(server):
    first = await find_or_create(server)
    await server.controller.delete(server.caller, first.row.id, wait=timedelta())
    second = await find_or_create(server)
    assert second.created
    assert second.row.id != first.row.id


async def test_session__finding_it_applies_the_requested_timeout(server):
    await find_or_create(server, wanted=SandboxRequest(template="base", timeout=MINUTE))
    found = await find_or_create(server, wanted=SandboxRequest(template="base", timeout=HOUR))
    assert found.row.expires_at - found.row.started_at > HOUR - MINUTE


async def test_session__the_same_name_of_another_tenant_is_another(server):
    await server.set_capacity(0)
    mine = await find_or_create(server, wait=timedelta())
    await server.add_tenant(other := new_id())
    theirs = await server.controller.find_or_create(caller_of(other), "one", BASE, wait=timedelta())
    assert theirs.created
    assert theirs.row.id != mine.row.id
    rows = await server.controller.list_page(
        server.caller, SandboxFilter(session_id="one"), limit=10
    )
    assert [row.id for row in rows] == [mine.row.id]
