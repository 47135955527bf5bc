"""A Chromium that listens for the DevTools protocol on the loopback interface."""

import asyncio
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from tests.browser import find_chromium

_LISTENING = re.compile(rb"DevTools listening on (ws://127\.0\.0\.1:(\d+)(/\S+))")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-gpu", "--disable-background-networking", "--remote-debugging-port=0"),
)


@dataclass(frozen=True)
class Chromium:
    """A running browser."""

    port: int
    path: str
    process: asyncio.subprocess.Process


@asynccontextmanager
async def listening_chromium() -> AsyncIterator[Chromium]:
    """Run a browser for the block; a test is skipped where there is none."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("there is no browser: apt-get install --no-install-recommends chromium")
    profile = tempfile.mkdtemp()
    process = await asyncio.create_subprocess_exec(
        *(executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(60):
            found = await _read_address(process)
        yield Chromium(int(found[2]), found[3].decode(), process)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _read_address(process: asyncio.subprocess.Process) -> re.Match[bytes]:
    assert process.stderr is not None
    async for line in process.stderr:
        if (found := _LISTENING.search(line)) is not None:
            return found
    raise AssertionError("Chromium ended before it listened.")
