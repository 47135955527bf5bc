"""A real Chromium, and pages that tell what went wrong in them."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Find a Chromium of this machine; playwright brings none of its own."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@asynccontextmanager
async def running_chromium(*flags: str) -> AsyncIterator[Browser]:
    """Run a browser without windows; a test is skipped where there is none."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("there is no browser: apt-get install --no-install-recommends chromium")
    async with async_playwright() as playwright:
        # Playwright leaves Chromium's own sandbox out, which root may not have. In a container /dev/shm is small.
        browser = await playwright.chromium.launch(
            executable_path=executable, args=["--disable-dev-shm-usage", *flags]
        )
        yield browser
        await browser.close()


@dataclass
class WatchedPage:
    """A page, and what its console, its scripts and its requests complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._note_request)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _note_request(self, request: Request) -> None:
        self.complaints.append(f"{request.method} {request.url}: {request.failure}")
