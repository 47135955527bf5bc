import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sandbox_server.browsers.records.captcha_solver import CaptchaSolver
from sandbox_server.browsers.records.captcha_watch import CaptchaWatch
from sandbox_server.browsers.records.cdp_client import CdpClient
from sandbox_server.browsers.records.connector import Connector
from sandbox_server.browsers.records.entries import LogEntry, pack_entries
from sandbox_server.browsers.records.frames import pack_frames
from sandbox_server.browsers.records.page_recorder import PageRecorder, Recorded, now_ms
from sandbox_server.browsers.records.store import RecordKind, RecordStore
from sandbox_server.db.models import BrowserSession
from sandbox_server.db.session import OUTAGES

log = logging.getLogger(__name__)

FLUSH_EVERY = timedelta(seconds=2)

_MOST_ENTRIES = 2000  # that wait for the database
_PART = 2**20
_PAGES = {
    "autoAttach": True,
    "waitForDebuggerOnStart": False,
    "flatten": True,
    "filter": [{"type": "page"}],
}


class SessionRecorder:
    """Records the pages of a session through one connection to its browser."""

    def __init__(
        self,
        row: BrowserSession,
        store: RecordStore,
        connector: Connector,
        recorded: Recorded,
        solver: CaptchaSolver | None,
    ) -> None:
        self._row = row
        self._store = store
        self._connector = connector
        self._recorded = recorded
        self._solver = solver
        self._pages: dict[str, PageRecorder] = {}
        self._entries: list[LogEntry] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: CdpClient
        self._is_full = asyncio.Event()

    async def run(self) -> None:
        """Record until the connection ends; raises CdpFailure or SandboxError if there is none."""
        self._client = await self._connector.connect(
            self._row.tenant_id, self._row.sandbox_id, self._on_event
        )
        try:
            await self._client.call("Target.setAutoAttach", _PAGES)
            while not self._client.closed.is_set():
                await self._wait()
                await self.flush()
        finally:
            for task in self._tasks:
                task.cancel()
            for page in self._pages.values():
                page.stop()
            self._client.close()
            await self.flush()

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def add_entry(self, entry: LogEntry) -> None:
        if len(self._entries) < _MOST_ENTRIES:
            self._entries.append(entry)

    async def flush(self) -> None:
        """Store what was recorded."""
        try:
            entries, self._entries = self._entries, []
            if entries:
                await self._store.append(
                    self._row.id,
                    RecordKind.ENTRIES,
                    await asyncio.to_thread(pack_entries, entries),
                    first_ms=entries[0].at_ms,
                    last_ms=entries[-1].at_ms,
                )
            for page in list(self._pages.values()):
                await self._flush_page(page)
        except OUTAGES as error:
            log.warning("session not recorded session_id=%s error=%r", self._row.id, error)

    async def _flush_page(self, page: PageRecorder) -> None:
        frames = page.take_frames()
        if frames:
            await self._store.append(
                self._row.id,
                RecordKind.FRAMES,
                pack_frames(page.url, frames),
                page=page.number,
                first_ms=frames[0].at_ms,
                last_ms=frames[-1].at_ms,
            )

    async def _wait(self) -> None:
        """Wait until it is time to store something."""
        self._is_full.clear()
        waits = [asyncio.create_task(each.wait()) for each in (self._client.closed, self._is_full)]
        await asyncio.wait(
            waits, timeout=FLUSH_EVERY.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        for each in waits:
            each.cancel()

    def _on_event(self, method: str, params: Mapping[str, Any], session_id: str | None) -> None:
        if method == "Target.attachedToTarget":
            self._start(self._attach(str(params.get("sessionId")), params))
        elif method == "Target.detachedFromTarget":
            page = self._pages.pop(str(params.get("sessionId")), None)
            if page is not None:
                page.stop()
                self._start(self._flush_page(page))
        elif session_id is not None and (page := self._pages.get(session_id)) is not None:
            page.on_event(method, params)
            if page.size > _PART:
                self._is_full.set()

    async def _attach(self, target_session: str, params: Mapping[str, Any]) -> None:
        target = params.get("targetInfo")
        target = target if isinstance(target, dict) else {}
        try:
            number = await self._store.number_page(self._row.id, str(target.get("targetId")))
        except OUTAGES as error:
            log.warning("page not recorded session_id=%s error=%r", self._row.id, error)
            return
        page = PageRecorder(
            self._client,
            target_session,
            number=number,
            url=str(target.get("url", "")),
            recorded=self._recorded,
            add_entry=self.add_entry,
            captchas=self._watch_captchas(target_session, number),
        )
        self._pages[target_session] = page
        await page.start()

    def _watch_captchas(self, target_session: str, page: int) -> CaptchaWatch | None:
        if self._solver is None or self._recorded.captchas is None:
            return None
        return CaptchaWatch(
            self._client,
            target_session,
            session_id=self._row.id,
            page=page,
            solver=self._solver,
            options=self._recorded.captchas,
            add_entry=self.add_entry,
            now_ms=now_ms,
        )

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
