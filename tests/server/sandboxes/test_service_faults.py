"""What callers see of a provider that fails, and of a server that ends."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import NotReady, ResumeFailed, SandboxFailed
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State, Target
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.fault_proxy import answer_with, hold, lose_answer
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import DAY, MINUTE

pytestmark = pytest.mark.needs_engine

NOTHING = timedelta()
BASE = SandboxRequest(template="base")
IMPATIENT = replace(POLLING, grace=NOTHING)


@pytest.fixture
async def shaky(database, faulty):
    """Run a server whose way to the provider is the proxy."""
    async with running_server(database, faulty, policy=IMPATIENT) as server:
        yield server


async def test_create__a_lost_answer_leads_to_one_sandbox(shaky, proxy):
    proxy.on("POST /v2/sandboxes", lose_answer)
    row = await shaky.running()
    assert [one.id for one in await shaky.living.backend.list_all()] == [row.backend_sandbox_id]


async def test_create__waits_while_the_provider_is_full(shaky, proxy):
    proxy.on("POST /v2/sandboxes", answer_with(429, Retry_After="1"))
    row = await shaky.running()
    assert await shaky.living.states(row.id) == ["starting", "queued", "starting", "running"]


async def test_create__is_queued_while_the_provider_is_down(shaky, proxy):
    await proxy.refuse()
    row = await shaky.controller.create(shaky.caller, BASE, wait=NOTHING)
    waiting = await shaky.settled(row.id, State.QUEUED)
    assert "reached" in waiting.state_reason
    await proxy.listen()
    assert (await shaky.settled(row.id, State.RUNNING)).backend == "local"


async def test_resume__a_refused_one_stays_paused_with_reason_and_retention(shaky, proxy):
    row = await shaky.paused()
    proxy.on("POST /v2/sandboxes/", answer_with(400, '{"message": "not on a Monday"}'))

    with pytest.raises(ResumeFailed, match="not on a Monday"):
        await shaky.controller.resume(shaky.caller, row.id)

    still = await shaky.living.row(row.id)
    assert (still.state, still.target) == (State.PAUSED, Target.PAUSED)
    assert still.retain_until == row.retain_until > row.created_at + 29 * DAY
    assert (await shaky.controller.resume(shaky.caller, row.id)).state is State.RUNNING


async def test_resume__a_sandbox_lost_by_its_provider_fails(server):
    row = await server.paused()
    await server.living.backend.kill(row.backend_sandbox_id)
    with pytest.raises(SandboxFailed, match="no longer has the sandbox"):
        await server.controller.use(server.caller, row.id)


async def test_wait__its_timeout_does_not_stop_the_work(shaky, proxy):
    row = await shaky.paused()
    proxy.on("POST /v2/sandboxes/", hold)
    with pytest.raises(NotReady, match="resuming") as caught:
        await shaky.controller.use(shaky.caller, row.id, wait=timedelta(milliseconds=10))
    assert caught.value.retry_after
    still = await shaky.controller.resume(shaky.caller, row.id, wait=NOTHING)
    assert (still.state, still.target) == (State.RESUMING, Target.RUNNING)


@pytest.mark.parametrize("fault", [hold, lose_answer])
async def test_takeover__another_server_finishes_what_a_stopped_one_began(
    database, faulty, server, proxy, fault
):
    proxy.on("POST /v2/sandboxes", fault, times=100)
    async with running_server(database, faulty, policy=IMPATIENT) as ending:
        row = await ending.controller.create(ending.caller, BASE, wait=NOTHING)
        await until(lambda: proxy.has_seen("POST /v2/sandboxes", times=1))
    running = await server.settled(row.id, State.RUNNING)
    assert [one.id for one in await server.living.backend.list_all()] == [
        running.backend_sandbox_id
    ]


async def test_wait__sees_changes_of_another_server(server, replica):
    row = await server.running()
    await server.set_capacity(1)
    waiting = asyncio.create_task(replica.controller.create(replica.caller, BASE, wait=MINUTE))
    await until(replica.has_queue)
    await server.controller.delete(server.caller, row.id)
    assert (await waiting).state is State.RUNNING
