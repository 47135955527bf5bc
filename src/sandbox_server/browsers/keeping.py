import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta

from sandbox_server.browsers.contents import note_saved
from sandbox_server.browsers.downloads import SessionDownloads
from sandbox_server.browsers.preparation import SessionPreparation
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import SandboxError

log = logging.getLogger(__name__)

_LIMIT = timedelta(minutes=2)


class SessionContents:
    """Puts files into the sandbox of a session at its start, and takes them out at its end.

    A failure at the end loses files, never the end of the session.
    """

    def __init__(
        self, sessions: Sessions, preparation: SessionPreparation, downloads: SessionDownloads
    ) -> None:
        self._sessions = sessions
        self._preparation = preparation
        self._downloads = downloads

    async def prepare(self, row: BrowserSession) -> None:
        await self._preparation.prepare(row)

    async def keep(self, row: BrowserSession) -> None:
        if row.finished_at is not None or row.started_at is None:
            return
        if row.driven_at is not None:
            await _attempt(row, "downloads", self._downloads.keep(row))
        if row.settings.get("has_proxies"):
            await _attempt(row, "traffic", self._note_traffic(row))
        if row.context_id is not None and row.context_persist:
            await _attempt(row, "context", self._save_context(row, row.context_id))

    async def _note_traffic(self, row: BrowserSession) -> None:
        proxy_bytes = await self._preparation.read_traffic(row)
        async with self._sessions.begin() as session:
            locked, _ = await BrowserSessionRepository(session).lock(row.id)
            locked.proxy_bytes = proxy_bytes

    async def _save_context(self, row: BrowserSession, context_id: str) -> None:
        await self._preparation.save_profile(row)
        async with self._sessions.begin() as session:
            await note_saved(session, context_id)


async def _attempt(row: BrowserSession, what: str, work: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(_LIMIT.total_seconds()):
            await work
    except (SandboxError, TimeoutError, ValueError) as error:
        log.warning("not kept what=%s session_id=%s error=%s", what, row.id, error)
