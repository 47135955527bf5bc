"""Uploads and downloads that end before their time, through the unmodified SDK."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from e2b import SandboxException

from tests.engine.memory_growth import MIB
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

AT_ONCE_S = 5


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_broken_transfer__aborted_upload_keeps_the_old_file(
    engine, shared, directory, framing
):
    path = f"{directory}/file"
    await shared.files.write(path, "old")
    mark = secrets.token_hex(4)
    framed = {"length": b"Content-Length: %d" % (8 * MIB), "chunks": b"Transfer-Encoding: chunked"}
    _, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n%s\r\n\r\n"
        % (shared.upload_url(path).removeprefix(engine.url).encode(), framed[framing])
    )
    body = mark.encode() * (MIB // 2)
    writer.write(body if framing == "length" else b"%x\r\n%s\r\n" % (len(body), body))
    await writer.drain()
    await until(lambda: _spools(engine, shared))
    assert await shared.files.read(path) == "old"
    writer.transport.abort()

    async def is_dropped():
        return not await _spools(engine, shared)

    await until(is_dropped)
    assert await shared.files.read(path) == "old"
    assert [entry.name for entry in await shared.files.list(directory)] == ["file"]


async def test_broken_transfer__failing_source_keeps_the_old_file(shared, directory):
    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(3 * MIB)
        raise RuntimeError("the source failed")

    await shared.files.write(f"{directory}/file", "old")
    with pytest.raises(Exception, match="the source failed"):  # an HTTP client's own
        await shared.files.write(f"{directory}/file", pieces())
    assert await shared.files.read(f"{directory}/file") == "old"


async def test_broken_transfer__killed_sandbox_ends_running_transfers(sandbox):
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB // 4)
            started.set()
            await asyncio.sleep(0.01)

    await sandbox.commands.run("truncate -s 1G large")
    download = await sandbox.files.read("large", format="stream")
    assert await anext(download)
    upload = asyncio.create_task(sandbox.files.write("file", endless()))
    await started.wait()
    await sandbox.kill()
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(SandboxException):
            await upload
        with pytest.raises(httpx.TransportError):
            async for _ in download:
                pass


async def _spools(engine, sandbox):
    """List what the engine holds open of bodies that are not whole yet."""
    held = []
    for descriptor in Path(f"/proc/{engine.pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if f"/{sandbox.sandbox_id}/" in target and target.endswith("(deleted)"):
            held.append(target)
    return held
