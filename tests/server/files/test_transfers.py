"""Transfers whose other side stalls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from http import HTTPStatus

import pytest
from fastapi import APIRouter, Request, Response

from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.files.requests import to_body
from sandbox_server.files.views import FileStream
from sandbox_server.http.deps import Operator
from sandbox_server.providers.protocol.transfers import OpenedFile
from tests.server.support.socket_server import exchange, serving

SHORT = timedelta(milliseconds=200)
ENDLESS = 2**40


@pytest.fixture
def closed():
    return asyncio.Event()


@pytest.fixture
def app(app, closed):
    router = APIRouter(prefix="/v1/test")

    async def endless():
        while True:
            await asyncio.sleep(0)  # as a sandbox's network does
            yield b"x" * 65536

    async def breaking():
        yield b"x" * 10
        raise BackendUnavailable("local", "it broke")

    async def close() -> None:
        closed.set()

    def stream(parts: AsyncIterator[bytes]) -> Response:
        held = AsyncExitStack()
        held.push_async_callback(close)
        opened = OpenedFile(length=ENDLESS, modified=None, parts=parts, close=close)
        return FileStream(opened, held, status=HTTPStatus.OK, headers={}, stall=SHORT)

    @router.get("/endless", response_class=Response)
    async def send_for_ever(caller: Operator) -> Response:
        return stream(endless())

    @router.get("/breaking", response_class=Response)
    async def break_off(caller: Operator) -> Response:
        return stream(breaking())

    @router.put("/content")
    async def take(caller: Operator, request: Request) -> int:
        return sum([len(part) async for part in to_body(request, stall=SHORT).parts])

    app.include_router(router)
    return app


@pytest.fixture
async def port(app):
    async with serving(app) as port:
        yield port


@pytest.fixture
async def head(make_key):
    key = await make_key()

    def lines(*first):
        return "\r\n".join([*first, "Host: server", f"X-API-Key: {key}", "", ""]).encode()

    return lines


async def test_download__a_client_that_does_not_read_is_disconnected(port, head, closed):
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
    writer.write(head("GET /v1/test/endless HTTP/1.1"))
    async with asyncio.timeout(30):
        await closed.wait()
    writer.close()


@pytest.mark.parametrize("path", ["endless", "breaking"])
async def test_download__ends_with_its_client_or_its_sandbox(port, head, closed, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(f"GET /v1/test/{path} HTTP/1.1"))
    await reader.readexactly(10)
    if path == "endless":
        writer.close()
    async with asyncio.timeout(30):
        await closed.wait()
        if path == "breaking":
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(10_000)
    writer.close()


async def test_upload__a_client_that_does_not_send_is_disconnected(port, head):
    status, answer = await exchange(
        port, head("PUT /v1/test/content HTTP/1.1", "Content-Length: 100") + b"x" * 10
    )
    assert status == 408
    assert b"transfer-stalled" in answer
