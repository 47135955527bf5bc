"""A malicious sandbox that answers file requests itself: its owner has root in it."""

import asyncio
from contextlib import aclosing, closing
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError, SandboxError, TooManyEntries
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.providers.protocol.errors import AnswerLost
from tests.server.support.fault_proxy import answer_with, hold, stall

pytestmark = pytest.mark.needs_engine

SOON = timedelta(seconds=1)


@pytest.fixture
def backend(backend_at, proxy):
    return backend_at(proxy.url)


@pytest.fixture
async def access(backend, new_sandbox):
    return await backend.create(new_sandbox())


@pytest.fixture
def transfers(backend, access):
    return transfers_at(backend, access)


def transfers_at(backend, access):
    return Transfers(
        "local",
        backend.handle(access),
        envd_version=access.envd_version,
        user=None,
        directories=backend.directories(access),
        stall=SOON,
    )


@pytest.fixture
def files(backend, access):
    return backend.files(access)


async def parts(*given):
    for part in given:
        yield part


async def read(transfers, path):
    opened = await transfers.open(path)
    return b"".join([part async for part in opened.parts])


async def test_malicious_sandbox__an_invalid_file_response_is_rejected(transfers, proxy):
    encoded = answer_with(200, "x", Content_Encoding="gzip")
    redirect = answer_with(302, "", Location="http://127.0.0.1:1/elsewhere")
    for fault in (encoded, redirect, answer_with(204), answer_with(500, "x" * 100_000)):
        proxy.on("GET /files", fault)
        async with asyncio.timeout(30):
            with pytest.raises(SandboxError) as caught:
                await read(transfers, "/etc/passwd")
        assert caught.value.__context__ is None
        assert len(str(caught.value)) < 1000
    assert not any("elsewhere" in line for line in proxy.seen)


async def test_malicious_sandbox__a_file_without_a_length_is_rejected(transfers, proxy):
    async def endless(exchange):
        await exchange.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await exchange.answer(b"4\r\nlie!\r\n")
            await asyncio.sleep(0)

    proxy.on("GET /files", endless)
    with pytest.raises(BackendError, match="how long"):
        await read(transfers, "/etc/passwd")


async def test_malicious_sandbox__a_file_shorter_than_declared_breaks_the_download(
    transfers, proxy
):
    async def short(exchange):
        await exchange.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nlie")
        exchange.hang_up()

    proxy.on("GET /files", short)
    with pytest.raises(SandboxError):
        await read(transfers, "/etc/passwd")


@pytest.mark.parametrize("fault", [hold, stall], ids=["nothing", "half"])
async def test_malicious_sandbox__a_silent_download_times_out(transfers, proxy, fault):
    await transfers.upload("/tmp/x", parts(b"x" * 100_000), length=None)
    proxy.on("GET /files", fault)
    async with asyncio.timeout(30):
        with pytest.raises(AnswerLost, match="silent for 1 s"):
            await read(transfers, "/tmp/x")


async def test_malicious_sandbox__an_upload_that_is_not_read_times_out(backend_at, access):
    over = asyncio.Event()

    async def take_nothing(reader, writer):
        with closing(writer):
            await over.wait()

    async with await asyncio.start_server(take_nothing, "127.0.0.1", 0) as deaf:
        url = f"http://127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
        transfers = transfers_at(backend_at(url), access)
        async with asyncio.timeout(30):
            with pytest.raises(AnswerLost, match="silent for 1 s"):
                await transfers.upload("/tmp/x", parts(*[b"x" * 100_000] * 1000), length=None)
        over.set()


async def test_file_upload__an_error_of_the_sender_is_raised_unchanged(transfers, files):
    class Left(Exception):
        pass

    async def leaving():
        yield b"x" * 100_000
        raise Left

    async with asyncio.timeout(30):
        with pytest.raises(Left):
            await transfers.upload("/tmp/y", leaving(), length=1_000_000)
    assert await files.find("/tmp/y") is None


async def test_malicious_sandbox__an_endless_listing_is_read_up_to_a_limit(files, proxy):
    async def endless(exchange):
        await exchange.answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        lie = b"x" * 65536
        while True:
            await exchange.answer(b"10000\r\n" + lie + b"\r\n")

    proxy.on("POST /filesystem.Filesystem/ListDir", endless)
    async with asyncio.timeout(30):
        with pytest.raises(TooManyEntries):
            await files.list_below("/tmp", depth=1, limit=10)


async def test_malicious_sandbox__a_missing_file_response_times_out(backend, access, proxy):
    files = Files(
        "local",
        backend.handle(access),
        envd_version=access.envd_version,
        user=None,
        directories=backend.directories(access),
        limit=SOON,
    )
    proxy.on("POST /filesystem.Filesystem/Stat", stall)
    async with asyncio.timeout(30):
        with pytest.raises(SandboxError):
            await files.stat("/tmp")


async def test_file_watch__a_watch_ends_when_its_sandbox_is_gone(backend_at, new_sandbox):
    backend = backend_at()
    access = await backend.create(new_sandbox())
    changes = await backend.files(access).watch("/tmp", recursive=False)
    async with aclosing(changes):
        await backend.kill(access.provider_id)
        async with asyncio.timeout(30):
            with pytest.raises(SandboxError):
                await anext(changes)
