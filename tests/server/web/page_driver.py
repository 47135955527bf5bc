"""Drives the web page at `/` like a user."""

import asyncio
import re
from contextlib import suppress

from playwright.async_api import TimeoutError as NotShown

from tests.browser import WatchedPage

PATIENCE_MS = 30_000

# Console errors for streams that the page closed, for requests in progress when the page was left, and for all requests when
# the machine's network changes, as with each new sandbox.
_NO_MATTER = re.compile(r".*net::ERR_(?:ABORTED|NETWORK_CHANGED)")


class FirstPage:
    """A browser tab with the page."""

    def __init__(self, tab: WatchedPage, url: str) -> None:
        self.tab = tab
        self.page = tab.page
        self.url = url

    @property
    def complaints(self) -> list[str]:
        return [one for one in self.tab.complaints if _NO_MATTER.fullmatch(one) is None]

    def forget_complaints(self, *expected: str) -> None:
        """Ignore errors that a test expects."""
        self.tab.complaints[:] = [
            one for one in self.complaints if not any(text in one for text in expected)
        ]

    async def sign_in(self, key: str) -> None:
        await self.page.goto(self.url)
        await self.enter(key)
        await self.page.get_by_role("button", name="Sign out").wait_for()

    async def enter(self, key: str) -> None:
        await self.page.get_by_label("API key").fill(key)
        await self.page.get_by_role("button", name="Sign in").click()

    async def open(self, path: str) -> None:
        """Navigate to a view."""
        await self.page.evaluate("path => { location.hash = path }", path)

    async def click(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def until_live(self) -> None:
        await self.page.locator(".connection.live").wait_for(timeout=PATIENCE_MS)

    async def until_signed_out(self) -> None:
        await self.page.get_by_label("API key").wait_for(timeout=PATIENCE_MS)

    async def until_row_says(self, sandbox_id: str, *texts: str) -> None:
        """Wait until the sandbox's row contains all of the texts."""
        await self.until(
            """([id, texts]) => {
              const row = document.querySelector(`[data-id="${id}"]`);
              return row !== null && texts.every(text => row.textContent.includes(text));
            }""",
            [sandbox_id, list(texts)],
        )

    async def until_gone(self, sandbox_id: str) -> None:
        await self.page.locator(f'[data-id="{sandbox_id}"]').wait_for(
            state="detached", timeout=PATIENCE_MS
        )

    async def until_shown(self, selector: str, text: str) -> None:
        await self.page.locator(selector).filter(has_text=text).first.wait_for(timeout=PATIENCE_MS)

    async def until_screen_has(self, text: str, *, timeout_ms: int = PATIENCE_MS) -> None:
        """Wait until the terminal shows the text."""
        await self.until(
            """text => {
              const rows = [...document.querySelectorAll(".xterm-rows > div")];
              return rows.map(row => row.textContent).join("\\n").replaceAll("\\u00a0", " ").includes(text);
            }""",
            text,
            timeout_ms=timeout_ms,
        )

    async def type_until_screen_has(self, line: str, text: str) -> None:
        """Type a line until its output is shown.

        Output that a terminal prints while no server records it is lost, as after a crash until the lease of the server lapses.
        """
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while True:
                await self.page.keyboard.type(line)
                with suppress(NotShown):
                    return await self.until_screen_has(text, timeout_ms=2000)

    async def until(
        self, condition: str, argument: object = None, *, timeout_ms: int = PATIENCE_MS
    ) -> None:
        await self.page.wait_for_function(condition, arg=argument, timeout=timeout_ms)
