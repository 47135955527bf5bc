"""The standard streams as bytes."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

_STDIN = 0
_PART = 256 * 1024


async def read_stdin() -> AsyncIterator[bytes]:
    """Read stdin in chunks. A daemon thread blocks on it, so that exiting does not wait for input."""
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        part = b"begun"
        while part:
            try:
                part = os.read(_STDIN, _PART)
            except OSError:  # stdin is closed
                part = b""
            with suppress(RuntimeError):  # the loop is closed
                asyncio.run_coroutine_threadsafe(parts.put(part), loop).result()

    threading.Thread(target=read, daemon=True).start()
    while part := await parts.get():
        yield part


async def write_output(stream: str, content: bytes) -> None:
    """Write bytes to stdout or stderr without blocking the loop on a slow reader."""
    file = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
    await asyncio.to_thread(_write, file, content)


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
