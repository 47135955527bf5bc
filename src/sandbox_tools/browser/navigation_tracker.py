import asyncio
from contextlib import suppress

from playwright.async_api import Error, Frame, Page, Request

_QUIET_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0


class Loading:
    """Knows of a page whether it is on its way to another document."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._underway: set[Request] = set()
        self._stopping: asyncio.Task[None] | None = None
        self.stirred = asyncio.Event()
        self.arrivals = 0
        page.on("request", self._requested)
        page.on("requestfinished", self._requested_no_more)
        page.on("requestfailed", self._requested_no_more)
        page.on("framenavigated", self._navigated)

    @property
    def destination(self) -> str | None:
        """The URL that the page is on its way to, while its server has not answered."""
        return next((request.url for request in self._underway), None)

    async def wait_until_failure_is_shown(self, *, arrivals: int) -> None:
        """Wait for Chromium's own page about a failure, which comes late and would break off what is opened next."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self.arrivals == arrivals:
                    self.stirred.clear()
                    await self.stirred.wait()

    async def stop(self) -> None:
        with suppress(Error):  # the page is gone
            session = await self._page.context.new_cdp_session(self._page)
            await session.send("Page.stopLoading")
            await session.detach()

    def stop_soon(self) -> None:
        """Stop without waiting, as a call that was cancelled can wait for nothing more."""
        self._stopping = asyncio.create_task(self.stop())

    async def wait_until_stopped(self) -> None:
        if self._stopping:
            await self._stopping

    async def settle(self) -> bool:
        """Wait until what an action set off has come to rest; False if it did not in some seconds."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while await self._stirs():
                    self.stirred.clear()
                while self._underway:
                    self.stirred.clear()
                    await self.stirred.wait()
                await self._page.wait_for_load_state("load", timeout=0)
        except TimeoutError:
            return False
        return True

    async def _stirs(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                await self.stirred.wait()
        except TimeoutError:
            return False
        return True

    def _requested(self, request: Request) -> None:
        if self._leaves_page(request):
            self._underway.add(request)
            self.stirred.set()

    def _requested_no_more(self, request: Request) -> None:
        if request in self._underway:
            self._underway.discard(request)
            self.stirred.set()

    def _navigated(self, frame: Frame) -> None:
        if frame == self._page.main_frame:
            self.arrivals += 1
            self._underway.clear()
            self.stirred.set()

    def _leaves_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self._page.main_frame
        except Error:  # the first request of a page that is only being made
            return False
