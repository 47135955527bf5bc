import asyncio
import logging
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum, auto

from sandbox_server.browsers.cdp.policy import Direction
from sandbox_server.browsers.records.captcha_solver import CaptchaSolver
from sandbox_server.browsers.records.captcha_watch import CaptchaOptions
from sandbox_server.browsers.records.cdp_client import CdpFailure
from sandbox_server.browsers.records.connector import Connector
from sandbox_server.browsers.records.messages import MessageBuffer, pack_messages
from sandbox_server.browsers.records.page_recorder import Recorded, now_ms
from sandbox_server.browsers.records.session_recorder import SessionRecorder
from sandbox_server.browsers.records.store import RecordKind, RecordStore, lock_session
from sandbox_server.db.models import BrowserSession
from sandbox_server.db.session import OUTAGES, Sessions
from sandbox_server.domain.computers.browsers import SESSION_ENDED
from sandbox_server.domain.errors import BrowserSessionNotFound, SandboxError
from sandbox_server.domain.ids import new_id

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)

_RENEW_EVERY = LEASE / 3
_STORE_EVERY = timedelta(seconds=1)
_PAUSE = timedelta(seconds=1)


class _Turn(Enum):
    OWN = auto()  # this server records the session
    OTHER = auto()  # another one does
    OVER = auto()


class SessionRecorders:
    """Records the sessions whose drivers are connected to this server.

    Each server stores the messages of its drivers; of the pages, one server is the recorder, by a lease.
    """

    def __init__(
        self,
        sessions: Sessions,
        store: RecordStore,
        connector: Connector,
        solver: CaptchaSolver | None = None,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._connector = connector
        self._solver = solver
        self._own_id = new_id()
        self._buffers: dict[str, MessageBuffer] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._has_messages = asyncio.Event()

    def begin(self, row: BrowserSession) -> None:
        """Record a session, if it wants that, until it ends."""
        recorded = self._recorded(row)
        if row.id not in self._followers and recorded.is_anything:
            task = asyncio.create_task(self._follow(row, recorded))
            self._followers[row.id] = task
            task.add_done_callback(lambda _: self._followers.pop(row.id, None))

    def records_messages(self, row: BrowserSession) -> bool:
        return bool(row.settings.get("logs", True)) and self._store.keeps(RecordKind.MESSAGES)

    def note_message(
        self,
        session_id: str,
        payload: bytes,
        *,
        connection: str,
        direction: Direction,
        target_id: str | None,
    ) -> None:
        """Note a message between a driver and the browser."""
        buffer = self._buffers.setdefault(session_id, MessageBuffer())
        buffer.add(
            payload,
            at_ms=now_ms(),
            connection=connection,
            direction=direction,
            target_id=target_id,
        )
        self._has_messages.set()

    async def run(self) -> None:
        """Store messages until cancelled, and then what is left."""
        try:
            while True:
                await self._has_messages.wait()
                await asyncio.sleep(_STORE_EVERY.total_seconds())
                await self.store_messages()
        finally:
            await self._stop()

    async def store_messages(self) -> None:
        """Store the messages that were noted."""
        self._has_messages.clear()
        buffers, self._buffers = self._buffers, {}
        for session_id, buffer in buffers.items():
            messages = buffer.take()
            try:
                await self._store.append(
                    session_id,
                    RecordKind.MESSAGES,
                    await asyncio.to_thread(pack_messages, messages),
                    first_ms=messages[0].at_ms,
                    last_ms=messages[-1].at_ms,
                )
            except OUTAGES as error:
                log.warning("messages not stored session_id=%s error=%r", session_id, error)

    def _recorded(self, row: BrowserSession) -> Recorded:
        wants_logs = bool(row.settings.get("logs", True))
        wants_frames = bool(row.settings.get("recording", False))
        return Recorded(
            logs=wants_logs and self._store.keeps(RecordKind.ENTRIES),
            frames=wants_frames and self._store.keeps(RecordKind.FRAMES),
            captchas=None if self._solver is None else _captchas(row),
        )

    async def _stop(self) -> None:
        followers = list(self._followers.values())
        for each in followers:
            each.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await self.store_messages()

    async def _follow(self, row: BrowserSession, recorded: Recorded) -> None:
        try:
            while (turn := await self._take_turn(row.id)) is not _Turn.OVER:
                if turn is _Turn.OTHER:
                    await asyncio.sleep(_RENEW_EVERY.total_seconds())
                    continue
                try:
                    await self._record(row, recorded)
                except (CdpFailure, SandboxError) as error:
                    log.debug("session not recorded session_id=%s error=%s", row.id, error)
                await asyncio.sleep(_PAUSE.total_seconds())
        finally:
            with suppress(*OUTAGES):
                await self._leave(row.id)

    async def _record(self, row: BrowserSession, recorded: Recorded) -> None:
        recorder = SessionRecorder(row, self._store, self._connector, recorded, self._solver)
        renewal = asyncio.create_task(self._renew(row.id, recorder))
        try:
            await recorder.run()
        finally:
            renewal.cancel()

    async def _renew(self, session_id: str, recorder: SessionRecorder) -> None:
        turn = _Turn.OWN
        while turn is _Turn.OWN:
            await asyncio.sleep(_RENEW_EVERY.total_seconds())
            turn = await self._take_turn(session_id)
        recorder.close()

    async def _take_turn(self, session_id: str) -> _Turn:
        try:
            async with self._sessions.begin() as session:
                row, now = await lock_session(session, session_id)
                return self._decide(row, now)
        except BrowserSessionNotFound:
            return _Turn.OVER
        except OUTAGES as error:
            log.warning("recorder not registered session_id=%s error=%r", session_id, error)
            return _Turn.OTHER

    def _decide(self, row: BrowserSession, now: datetime) -> _Turn:
        if row.state in SESSION_ENDED:
            return _Turn.OVER
        is_taken = row.recorder_until is not None and row.recorder_until > now
        if is_taken and row.recorder_id != self._own_id:
            return _Turn.OTHER
        row.recorder_id, row.recorder_until = self._own_id, now + LEASE
        return _Turn.OWN

    async def _leave(self, session_id: str) -> None:
        with suppress(BrowserSessionNotFound):
            async with self._sessions.begin() as session:
                row, _ = await lock_session(session, session_id)
                if row.recorder_id == self._own_id:
                    row.recorder_id = row.recorder_until = None


def _captchas(row: BrowserSession) -> CaptchaOptions | None:
    if not row.settings.get("captcha"):
        return None
    selectors = row.settings.get("captcha_selectors", {})
    return CaptchaOptions(image=selectors.get("image"), text_input=selectors.get("input"))
