"""What callers of a real server hear, and what there is in the end, when the way to the provider is bad."""

import asyncio
from functools import partial

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Job
from sandbox_server.domain.state import State
from tests.engine.polling import until
from tests.server.crash.replicas import one_server
from tests.server.support.fault_proxy import (
    Held,
    answer_twice,
    answer_with,
    cut,
    deliver_twice,
    lose_answer,
)

pytestmark = pytest.mark.needs_engine

# What is asked of the server, what it asks of the provider for that, and what comes of it.
ACTS = [
    ("POST", "", "POST /v2/sandboxes", State.RUNNING),
    ("POST", "/{id}/pause", "POST /sandboxes/", State.PAUSED),
    ("POST", "/{id}/resume", "POST /v2/sandboxes/", State.RUNNING),
    ("DELETE", "/{id}", "DELETE /sandboxes/", State.STOPPED),
]
FAULTS = {
    "lost-answer": lose_answer,
    "cut-in-the-middle": cut,
    "429": answer_with(429, Retry_After="1"),
    "500": answer_with(500, "out of order"),
    "answered-twice": answer_twice,
    "delivered-twice": deliver_twice,
}
# What each run of the tests tries; the proofs try all.
USUAL = ("lost-answer",)


@pytest.fixture
async def served(database_url, sessions, engine):
    """Run a server on a way to the provider on which things happen."""
    async with one_server(database_url, sessions, engine) as served:
        yield served


class Life:
    """One sandbox, asked for and done with by a caller who is told the truth."""

    def __init__(self, served):
        self._served = served
        self._id = None

    async def want(self, method, path, state):
        async with self._served.server.client() as caller:
            answer = await caller.request(method, f"/v1/sandboxes{path.format(id=self._id)}")
        assert answer.is_success, answer.text
        if answer.content:
            told = answer.json()
            self._id = told["id"]
            assert answer.status_code == 202 or told["state"] == state
        await until(partial(self._is, state), timeout=60)
        there = [one.state.value for one in await self._served.living.backend.list_all()]
        assert there == ([] if state is State.STOPPED else [state])

    async def _is(self, state):
        return (await self._served.living.row(self._id)).state is state


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if each in USUAL else pytest.mark.slow) for each in FAULTS],
)
async def test_provider_fault__each_request_is_carried_out_once_whatever_is_lost(served, fault):
    life = Life(served)
    for method, path, request, state in ACTS:
        served.provider.on(request, FAULTS[fault])
        await life.want(method, path, state)


@pytest.mark.slow  # each wish, with an outage
async def test_provider_fault__each_request_is_carried_out_once_after_an_outage(served):
    life = Life(served)
    for method, path, _, state in ACTS:
        await served.provider.refuse()
        wanting = asyncio.create_task(life.want(method, path, state))
        await until(partial(_has_failed, served), timeout=60)
        await served.provider.listen()
        await wanting


async def _has_failed(served):
    """Tell whether something was tried in vain: it waits in the queue again, or its job says why."""
    async with served.living.sessions() as session:
        failing = await session.scalar(select(Job.id).where(Job.last_error.is_not(None)).limit(1))
    return failing is not None or any(row.state is State.QUEUED for row in await served.rows())


async def test_slow_provider__reads_return_the_current_step(served):
    life, on_the_way = Life(served), [State.STARTING, State.PAUSING, State.RESUMING, State.STOPPING]
    for (method, path, request, state), meanwhile in zip(ACTS, on_the_way, strict=True):
        held = Held(carried_out=True)
        served.provider.on(request, held)
        wanting = asyncio.create_task(life.want(method, path, state))
        await held.wait_reached()
        async with served.server.client() as caller:
            listed = (await caller.get("/v1/sandboxes")).json()
        assert [one["state"] for one in listed["items"]] == [meanwhile]
        held.let_go()
        await wanting
