"""Limits on the load of one tenant."""

import asyncio
import json

import pytest
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from sandbox_server.http.deps import Operator
from sandbox_server.http.tenant_limits import CONCURRENT_LARGE_REQUESTS, LARGE
from sandbox_server.settings import Settings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

ABSENT = "0" * 20
AT_ONCE = 7


@pytest.fixture
def settings():
    return Settings(max_requests_per_tenant=AT_ONCE)


@pytest.fixture
def app(app):
    """Add a route that answers with a stream once more requests are waiting than may read large bodies."""
    router = APIRouter()
    all_answered = asyncio.Barrier(CONCURRENT_LARGE_REQUESTS + 1)

    async def lines():
        yield "begun"
        await all_answered.wait()

    @router.post("/v1/test/stream")
    async def stream(caller: Operator, request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(lines(), media_type="text/event-stream")

    app.include_router(router)
    return app


@pytest.fixture
async def neighbour(app, make_key):
    async with caller_of(app, await make_key(tenant="neighbour")) as neighbour:
        yield neighbour


class Body:
    """A file upload that stops in the middle until it is released."""

    def __init__(self, size, half_read=None):
        fields = {"sandbox_id": ABSENT, "path": "/x", "content": "x" * size}
        self._content = json.dumps(fields).encode()
        self._half_read = half_read or asyncio.Queue()
        self.may_go_on = asyncio.Event()

    async def parts(self):
        middle = len(self._content) // 2
        yield self._content[:middle]
        self._half_read.put_nowait(self)
        await self.may_go_on.wait()
        yield self._content[middle:]

    async def send(self, caller):
        headers = {"Content-Type": "application/json"}
        return await caller.post("/sandboxes/write-file", content=self.parts(), headers=headers)


async def test_tenant_limits__large_bodies_of_a_tenant_are_read_a_few_at_a_time(admin, neighbour):
    half_read: asyncio.Queue[Body] = asyncio.Queue()
    bodies = [Body(4 * LARGE, half_read) for _ in range(CONCURRENT_LARGE_REQUESTS + 2)]
    async with asyncio.TaskGroup() as sending:
        tasks = [sending.create_task(body.send(admin)) for body in bodies]
        async with asyncio.timeout(30):
            reached = [await half_read.get() for _ in range(CONCURRENT_LARGE_REQUESTS)]
        theirs = Body(4 * LARGE)
        theirs.may_go_on.set()
        assert (await theirs.send(neighbour)).status_code == 404
        assert half_read.empty()
        reached[0].may_go_on.set()
        async with asyncio.timeout(30):
            await half_read.get()
        assert half_read.empty()
        for body in bodies:
            body.may_go_on.set()
    assert {task.result().status_code for task in tasks} == {404}


async def test_tenant_limits__a_large_body_answered_with_a_stream_releases_its_slot(admin):
    async with asyncio.timeout(30), asyncio.TaskGroup() as asking:
        for _ in range(CONCURRENT_LARGE_REQUESTS + 1):
            asking.create_task(admin.post("/v1/test/stream", content=b"x" * 2 * LARGE))


async def test_tenant_limits__only_the_tenant_with_too_many_requests_is_rejected(admin, neighbour):
    half_read: asyncio.Queue[Body] = asyncio.Queue()
    bodies = [Body(100, half_read) for _ in range(AT_ONCE)]
    async with asyncio.TaskGroup() as sending:
        tasks = [sending.create_task(body.send(admin)) for body in bodies]
        async with asyncio.timeout(30):
            for _ in bodies:
                await half_read.get()
        refused = await admin.get("/v1/sandboxes")
        assert_problem(refused, status=429, code="too-many-at-once")
        assert refused.headers["retry-after"] == "1"
        assert (await neighbour.get("/v1/sandboxes")).status_code == 200
        for body in bodies:
            body.may_go_on.set()
    assert {task.result().status_code for task in tasks} == {404}
    assert (await admin.get("/v1/sandboxes")).status_code == 200
