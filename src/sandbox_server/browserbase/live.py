from datetime import timedelta
from typing import Any

from sandbox_server.browserbase.views import view_page, view_urls
from sandbox_server.browsers.cdp.proxy import CdpProxy
from sandbox_server.browsers.tokens import BrowserUse, in_a_while
from sandbox_server.browsers.urls import BrowserLinks
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.browsers import SESSION_ENDED
from sandbox_server.domain.errors import BrowserSessionEnded

_VIDEOS = timedelta(hours=1)


class LiveUrls:
    """URLs at which drivers and people reach the browser of a session."""

    def __init__(self, links: BrowserLinks, proxy: CdpProxy) -> None:
        self._links = links
        self._proxy = proxy

    def recordings(self, caller: Caller, row: BrowserSession) -> str:
        """Build the URL below which the videos of a session are, for an hour."""
        base = self._links.base(
            caller, row.sandbox_id, BrowserUse.RECORDINGS, expires_at=in_a_while(_VIDEOS)
        )
        return f"{base}/recordings"

    def drive(self, caller: Caller, row: BrowserSession) -> dict[str, str]:
        """List the URLs of drivers; none once the session has ended."""
        urls = self._links.of_session(row, caller)
        return {} if urls is None else view_urls(urls, urls.cdp_url.rpartition("/")[2])

    async def debug(
        self, caller: Caller, row: BrowserSession, *, lifetime: timedelta
    ) -> dict[str, Any]:
        """List the pages of the browser, with URLs that show them."""
        if row.state in SESSION_ENDED:
            raise BrowserSessionEnded(row.id, row.state_reason)
        expires_at = in_a_while(lifetime)
        sandbox_id = row.sandbox_id
        targets = await self._proxy.list_targets(caller, sandbox_id)
        pages = [
            view_page(
                each, self._links.live_url(caller, sandbox_id, each["id"], expires_at=expires_at)
            )
            for each in targets
            if each.get("type") == "page"
        ]
        first = self._links.live_url(caller, sandbox_id, expires_at=expires_at)
        view = self._links.base(caller, sandbox_id, BrowserUse.VIEW, expires_at=expires_at)
        return {
            "debuggerUrl": first,
            "debuggerFullscreenUrl": first,
            "wsUrl": view.replace("http", "ws", 1),
            "pages": pages,
        }
