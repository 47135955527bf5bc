"""A git child process whose input and output are streamed."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

_PART = 64 * 1024
_LAST_WORDS = 2000


class ChildFailed(Exception):
    """git ended with an error; the text has its last words."""


async def answer(child: Process, asked: bytes, *, timeout: timedelta) -> AsyncIterator[bytes]:
    """Send a request to the child and read its answer; raises after the last of it if it failed."""
    asking = asyncio.create_task(_write(child, asked))
    words = asyncio.create_task(_read_end(child))
    assert child.stdout is not None
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while part := await child.stdout.read(_PART):
                yield part
            if await child.wait() != 0:
                raise ChildFailed(await words)
    finally:
        asking.cancel()
        words.cancel()


async def consume(child: Process, body: AsyncIterator[bytes], *, timeout: timedelta) -> str:
    """Have the child read a body, and return what it prints."""
    words = asyncio.create_task(_read_end(child))
    assert child.stdout is not None
    output = asyncio.create_task(child.stdout.read())
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            async for part in body:
                await _write_part(child, part)
            await _write(child, b"")
            if await child.wait() != 0:
                raise ChildFailed(await words)
            return (await output).decode(errors="replace")
    finally:
        words.cancel()
        output.cancel()


async def _write(child: Process, content: bytes) -> None:
    await _write_part(child, content)
    assert child.stdin is not None
    child.stdin.close()


async def _write_part(child: Process, part: bytes) -> None:
    assert child.stdin is not None
    with suppress(
        ConnectionError
    ):  # it ended early, and its exit code says why; the rest is read and dropped
        child.stdin.write(part)
        await child.stdin.drain()


async def _read_end(child: Process) -> str:
    """Read what the child says about errors, to its end, and return the last of it."""
    assert child.stderr is not None
    kept = b""
    while part := await child.stderr.read(_LAST_WORDS):
        kept = (kept + part)[-_LAST_WORDS:]
    return kept.decode(errors="replace").strip()
