from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Unpack

from sandbox_client import models
from sandbox_client._async.pagination import list_all
from sandbox_client._async.tasks import AsyncTasks
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import BrowserOptions


class AsyncBrowsers(AsyncTasks):
    """Browser sessions, each in a sandbox of its own."""

    async def create_browser(
        self, *, wait_s: float = 60, **options: Unpack[BrowserOptions]
    ) -> models.BrowserRead:
        """Create a browser session; it is still pending if no slot was free for `wait_s`."""
        request = create(
            "/v1/browsers", request_body(models.BrowserCreate, options), wait=min(wait_s, 300)
        )
        return await self._transport.fetch(models.BrowserRead, request)

    def list_browsers(
        self, *, states: Iterable[models.BrowserState | str] | None = None
    ) -> AsyncGenerator[models.BrowserRead, None]:
        """List browser sessions, newest first; without states also those that have ended."""
        named = None if states is None else [models.BrowserState(each).value for each in states]
        return list_all(
            self._transport, "/v1/browsers", models.Page[models.BrowserRead], {"state": named}
        )

    async def get_browser(self, browser_id: str) -> models.BrowserRead:
        """Get a browser session, in any state."""
        return await self._transport.fetch(models.BrowserRead, call("GET", _path(browser_id)))

    async def release_browser(self, browser_id: str) -> models.BrowserRead:
        """End a browser session and delete its sandbox."""
        request = call("POST", f"{_path(browser_id)}/release", may_repeat=True)
        return await self._transport.fetch(models.BrowserRead, request)


def _path(browser_id: str) -> str:
    return f"/v1/browsers/{segment(browser_id)}"
