import asyncio
import fcntl
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError
from playwright.async_api import BrowserContext, Error, Playwright, ViewportSize, async_playwright

from sandbox_tools.browser.page_events import single_line

CDP_PORT = "SANDBOX_TOOLS_CDP_PORT"
"""Variable with the browser's port for CDP clients, which the server's `cdp_url` leads to; unset: none."""

_VIEWPORT = ViewportSize(width=1280, height=800)
# In addition to playwright's: no traffic that no page requested, and a bounded cache.
_FLAGS = ("--disable-quic", "--disable-gpu", "--disk-cache-size=104857600")
_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class OpenBrowser:
    """A browser in use; a shared one stays when this client leaves."""

    context: BrowserContext
    is_shared: bool


@asynccontextmanager
async def open_browser(executable: str, directory: Path) -> AsyncIterator[OpenBrowser]:
    """Use the browser that CDP clients of the sandbox use, or run one that they can use."""
    port = os.environ.get(CDP_PORT)
    is_shared = port is not None and await asyncio.to_thread(_is_listening, int(port))
    opening = (
        _connect(port) if port is not None and is_shared else _launch_owned(executable, directory)
    )
    async with opening as context:
        yield OpenBrowser(context, is_shared)


@asynccontextmanager
async def _connect(port: str) -> AsyncIterator[BrowserContext]:
    playwright = await async_playwright().start()
    try:
        try:
            browser = await playwright.chromium.connect_over_cdp(
                f"http://127.0.0.1:{port}", timeout=60_000
            )
        except Error as error:
            why = single_line(error.message, limit=1_000)
            raise ToolError(f"The browser of this sandbox cannot be used: {why}") from None
        try:
            yield browser.contexts[0]
        finally:
            await _close_quietly(browser.close)
    finally:
        await _close_quietly(playwright.stop)


def _is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False


@asynccontextmanager
async def _launch_owned(executable: str, directory: Path) -> AsyncIterator[BrowserContext]:
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
            args=_flags(),
            viewport=_VIEWPORT,
            timeout=60_000,
        )
    except Error as error:
        why = single_line(error.message, limit=1_000)
        raise ToolError(f"Chromium failed to start: {why}") from None


def _flags() -> Sequence[str]:
    port = os.environ.get(CDP_PORT)
    return _FLAGS if port is None else (*_FLAGS, f"--remote-debugging-port={port}")


async def _close_quietly(end: Callable[[], Awaitable[None]]) -> None:
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await end()
