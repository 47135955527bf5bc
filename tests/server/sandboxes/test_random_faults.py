"""What holds whatever is wanted of sandboxes at two servers, and whatever happens on the way to their provider."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest

from sandbox_server.db.session import create_engine
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import ENDED, State, may_follow, serves
from sandbox_server.jobs.policy import Backoff
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.fault_proxy import (
    Exchange,
    FaultyProxy,
    answer_twice,
    answer_with,
    cut,
    deliver_twice,
    lose_answer,
)
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import living_at

pytestmark = pytest.mark.needs_engine

AT_ONCE = timedelta()
IMPATIENT = replace(
    POLLING,
    backoff=Backoff(first=timedelta(milliseconds=10), longest=timedelta(milliseconds=50)),
    max_attempts=1000,
)
FAULTS = [
    lose_answer,
    cut,
    answer_with(500, "out of order"),
    answer_with(429, Retry_After="1"),
    answer_twice,
    deliver_twice,
]
SANDBOXES = 6
WISHES = 8


@pytest.fixture
async def pair(database_url, living, engine, backend_at):
    """Run two servers, each with a bad connection of its own to the provider."""
    async with AsyncExitStack() as stack:
        started = []
        for _ in range(2):
            proxy = await stack.enter_async_context(FaultyProxy(engine.port))
            pool = create_engine(database_url)
            stack.push_async_callback(pool.dispose)
            one = living_at(living.sessions, backend_at(proxy.url), tenant_id=living.tenant_id)
            server = running_server(pool, one, policy=IMPATIENT)
            started.append((await stack.enter_async_context(server), proxy))
        yield started


def _bad_weather(proxy, chance):
    for _ in range(100):
        proxy.on("", Exchange.relay, times=chance.randint(1, 3))
        proxy.on("", chance.choice(FAULTS))


async def _live(servers, chance):
    """Make a sandbox, and want this and that of it at one server or the other."""
    server = chance.choice(servers)
    wanted = SandboxRequest(template="base")
    made = await server.controller.create(server.caller, wanted, wait=AT_ONCE)
    for _ in range(WISHES):
        server = chance.choice(servers)
        controller = server.controller
        wish = chance.choice([controller.pause, controller.resume, controller.connect])
        with suppress(SandboxError):  # it may have failed, which is the provider's doing
            await wish(server.caller, made.id, wait=chance.choice([AT_ONCE, timedelta(seconds=1)]))
    if chance.random() < 1 / 3:
        await server.controller.delete(server.caller, made.id, wait=AT_ONCE)
    return made.id


@pytest.mark.parametrize("seed", range(3))
async def test_random_faults__each_sandbox_reaches_its_last_target_and_none_is_lost(
    living, pair, seed
):
    chance = random.Random(seed)
    for _, proxy in pair:
        _bad_weather(proxy, chance)
    each = [server for server, _ in pair]
    lives = [_live(each, random.Random(chance.random())) for _ in range(SANDBOXES)]
    ids = await asyncio.gather(*lives)

    for sandbox_id in ids:
        await until(partial(_has_settled, living, sandbox_id), timeout=120)

    rows = [await living.row(sandbox_id) for sandbox_id in ids]
    at_rest = {State.RUNNING, State.PAUSED}
    there = {one.id: one.state.value for one in await living.backend.list_all()}
    assert there == {row.backend_sandbox_id: row.state for row in rows if row.state in at_rest}
    for row in rows:
        assert row.state_reason
        assert (row.state in ENDED) == (row.expires_at is row.retain_until is None)
        told = await living.states(row.id)
        states = [State(state) for state in told if state != "deadline_changed"]
        assert all(may_follow(before, after) for before, after in pairwise(states))


async def _has_settled(living, sandbox_id):
    row = await living.row(sandbox_id)
    return serves(row.state, row.target)
