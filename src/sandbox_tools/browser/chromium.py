import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from fastmcp.exceptions import ToolError
from playwright.async_api import BrowserContext, Error, Playwright, ViewportSize, async_playwright

from sandbox_tools.browser.page_events import single_line

_VIEWPORT = ViewportSize(width=1280, height=800)
# In addition to playwright's: no traffic that no page requested, and a bounded cache.
_FLAGS = ("--disable-quic", "--disable-gpu", "--disk-cache-size=104857600")
_TIMEOUT_SECONDS = 10


@asynccontextmanager
async def launch_chromium(executable: str, directory: Path) -> AsyncIterator[BrowserContext]:
    """Run a headless Chromium with the profile in a directory, locked for this process."""
    with _locked_profile(directory) as profile:
        playwright = await async_playwright().start()
        try:
            context = await _launch(playwright, executable, profile)
            try:
                yield context
            finally:
                await _close_quietly(context.close)
        finally:
            await _close_quietly(playwright.stop)


@contextmanager
def _locked_profile(directory: Path) -> Iterator[Path]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(
                "The browser is in use by another tool server of this account. Use that server or stop it."
            ) from None
        profile = directory / "profile"
        # Chromium's own lock contains host and process: in a fork of the sandbox it would never be released.
        for left in profile.glob("Singleton*"):
            left.unlink()
        yield profile


async def _launch(playwright: Playwright, executable: str, profile: Path) -> BrowserContext:
    if os.geteuid() == 0:
        return await _launch_once(playwright, executable, profile, sandboxed=False)
    try:
        return await _launch_once(playwright, executable, profile, sandboxed=True)
    except ToolError:
        # Containers seldom permit the namespaces of Chromium's sandbox; they isolate it themselves.
        return await _launch_once(playwright, executable, profile, sandboxed=False)


async def _launch_once(
    playwright: Playwright, executable: str, profile: Path, *, sandboxed: bool
) -> BrowserContext:
    try:
        return await playwright.chromium.launch_persistent_context(
            profile,
            executable_path=executable,
            chromium_sandbox=sandboxed,
            args=_FLAGS,
            viewport=_VIEWPORT,
            timeout=60_000,
        )
    except Error as error:
        why = single_line(error.message, limit=1_000)
        raise ToolError(f"Chromium failed to start: {why}") from None


async def _close_quietly(end: Callable[[], Awaitable[None]]) -> None:
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await end()
