import asyncio
from contextlib import suppress

from playwright.async_api import Error, Frame, Page, Request

_QUIET_SECONDS = 0.2
_TIMEOUT_SECONDS = 5.0


class NavigationTracker:
    """Tracks whether a page is navigating to another document."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._pending: set[Request] = set()
        self._stopping: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.navigations = 0
        page.on("request", self._requested)
        page.on("requestfinished", self._request_ended)
        page.on("requestfailed", self._request_ended)
        page.on("framenavigated", self._navigated)

    @property
    def destination(self) -> str | None:
        """URL of the pending navigation, until its server responds."""
        return next((request.url for request in self._pending), None)

    async def wait_for_error_page(self, *, navigations: int) -> None:
        """Wait for Chromium's error page, which appears late and would abort the next navigation."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                while self.navigations == navigations:
                    self.changed.clear()
                    await self.changed.wait()

    async def stop(self) -> None:
        with suppress(Error):  # page closed
            session = await self._page.context.new_cdp_session(self._page)
            await session.send("Page.stopLoading")
            await session.detach()

    def stop_soon(self) -> None:
        """Stop in the background, for cancelled calls, which must not wait."""
        self._stopping = asyncio.create_task(self.stop())

    async def wait_until_stopped(self) -> None:
        if self._stopping:
            await self._stopping

    async def wait_until_idle(self) -> bool:
        """Wait until the page is idle after an action; return False on timeout."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                while await self._changes():
                    self.changed.clear()
                while self._pending:
                    self.changed.clear()
                    await self.changed.wait()
                await self._page.wait_for_load_state("load", timeout=0)
        except TimeoutError:
            return False
        return True

    async def _changes(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                await self.changed.wait()
        except TimeoutError:
            return False
        return True

    def _requested(self, request: Request) -> None:
        if self._leaves_page(request):
            self._pending.add(request)
            self.changed.set()

    def _request_ended(self, request: Request) -> None:
        if request in self._pending:
            self._pending.discard(request)
            self.changed.set()

    def _navigated(self, frame: Frame) -> None:
        if frame == self._page.main_frame:
            self.navigations += 1
            self._pending.clear()
            self.changed.set()

    def _leaves_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self._page.main_frame
        except Error:  # first request of a page under construction
            return False
