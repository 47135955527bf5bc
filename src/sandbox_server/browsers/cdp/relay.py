"""Two ends of a WebSocket, the client's and the browser's, and the messages between them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol

from websockets.frames import Opcode

from sandbox_http.frames import close_frame
from sandbox_http.tunnel import Connection
from sandbox_server.browsers.cdp.end import End
from sandbox_server.browsers.cdp.frames import Control, Message, Passage, Piece, build_frame
from sandbox_server.browsers.cdp.policy import CdpPolicy, Direction
from sandbox_server.browsers.cdp.rules import (
    Answer,
    CloseRequest,
    Forward,
    decide,
    decide_watcher,
    may_concern_rules,
)
from sandbox_server.domain.errors import SandboxError

PING_EVERY = timedelta(seconds=20)

_SILENT_PINGS = 3
_MOST_UNREAD = 4 * 1024 * 1024
_TIME_TO_CLOSE = timedelta(seconds=2)
_RESPONSE = b'{"id":'


@dataclass(frozen=True)
class Close:
    """Close code and reason of a WebSocket."""

    code: int
    reason: str


CLOSED_BROWSER = Close(1000, "The client closed the browser.")
INVALID = Close(1002, "The client violated the WebSocket protocol.")
FLOODED = Close(1008, "The client sends commands and does not read the answers.")
TOO_LARGE = Close(1009, "The message is too large for a link that is for watching.")
EXPIRED = Close(4401, "The link has expired.")


class Wakefulness(Protocol):
    """The sandbox of a relay: kept awake by traffic, resumed by a message."""

    @property
    def is_ready(self) -> bool:
        """Whether a message can be forwarded at once."""

    async def wake(self) -> None:
        """Resume the sandbox if it is paused."""

    def note_traffic(self) -> None:
        """Record a message."""

    def note_pending(self, commands: int) -> None:
        """Record how many commands wait for their responses."""


class Relay:
    """Forwards messages between one client and the browser.

    Frames are forwarded as received, with the client's mask. Only complete messages are inspected, and changed where the
    rules say so; larger ones stream through.
    """

    def __init__(
        self,
        policy: CdpPolicy,
        use: Wakefulness,
        *,
        page_id: str | None,
        only_watches: bool = False,
        explain_loss: Callable[[], Awaitable[Close]],
        ping_every: timedelta = PING_EVERY,
    ) -> None:
        self._policy = policy
        self._records = policy.records
        self._use = use
        self._page_id = page_id
        self._only_watches = only_watches
        self._explain_loss = explain_loss
        self._ping_every = ping_every
        self._ended = asyncio.Event()
        self._client = End(self._from_client, self._end, partial(self.close, INVALID))
        self._browser = End(self._from_browser, self._end, self._end)
        self._client.other, self._browser.other = self._browser, self._client
        self._controls: deque[bytes] = deque()
        self._answers: deque[bytes] = deque()
        self._queued = 0
        self._waiting: list[bytes] = []  # messages for a browser that is resumed
        self._waking: asyncio.Task[None] | None = None
        self._pending = 0
        self._close: Close | None = None
        self._is_closed = False  # a close frame was sent to the client, or by it

    async def run(self, client: Connection, browser: Connection, *, head: bytes) -> None:
        """Send `head` to the client, then forward until either side ends; the client is told why."""
        if client.is_closing() or browser.is_closing():
            raise ConnectionAbortedError
        from_client = client.take_over(self._client)
        from_browser = browser.take_over(self._browser)
        self._client.send(head)
        self._browser.data_received(from_browser)
        self._client.data_received(from_client)
        pings = asyncio.create_task(self._ping())
        try:
            await self._ended.wait()
            await self._end_client()
        finally:
            for task in filter(None, (pings, self._waking)):
                task.cancel()
            self._client.transport.abort()
            self._browser.transport.abort()

    def close(self, close: Close) -> None:
        """Disconnect the client, and tell it why."""
        self._close = self._close or close
        self._end()

    def _end(self) -> None:
        self._ended.set()
        self._browser.transport.close()  # nothing is received from here on, what was sent arrives

    async def _end_client(self) -> None:
        """Send the close frame and wait for the client's: closing at once could lose what was sent last."""
        client = self._client
        if not (self._is_closed or client.closed.is_set()):
            close = self._close or await self._explain_loss()
            if not self._browser.reader.is_between_frames:
                return  # the client sees the end of the connection
            client.send(close_frame(close.code, close.reason))
            client.read_all()
        if not client.is_valid:
            client.transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIME_TO_CLOSE.total_seconds()):
                await client.closed.wait()

    def _from_client(self, piece: Piece) -> None:
        if isinstance(piece, Control):
            self._take_control(piece)
            return
        if self._ended.is_set():
            return
        if self._only_watches:
            self._take_from_watcher(piece)
            return
        if not isinstance(piece, Message):
            self._to_browser(piece.raw)
            return
        if self._records:
            self._policy.record(Direction.CLIENT, piece.payload, self._page_id)
        if not may_concern_rules(piece.payload):
            self._count(1)
            self._to_browser(piece.raw)
            return
        decision = decide(piece.payload, downloads=self._policy.downloads)
        if isinstance(decision, Answer):
            self._queue(self._answers, build_frame(decision.message))
        elif isinstance(decision, CloseRequest):
            self._queue(self._answers, build_frame(decision.message))
            self.close(CLOSED_BROWSER)
            if not self._policy.keep_alive:
                self._policy.on_close_requested()
        else:
            self._count(1)
            changed = decision.message
            self._to_browser(piece.raw if changed is None else build_frame(changed, masked=True))

    def _take_from_watcher(self, piece: Message | Passage) -> None:
        """Forward what a viewer may send; its traffic does not resume a paused browser."""
        if not isinstance(piece, Message):
            self.close(TOO_LARGE)
            return
        decision = decide_watcher(piece.payload)
        if isinstance(decision, Forward) and decision.message is not None:
            self._browser.send(build_frame(decision.message, masked=True))
        elif isinstance(decision, Answer):
            self._queue(self._answers, build_frame(decision.message))

    def _take_control(self, frame: Control) -> None:
        if frame.opcode is Opcode.PING:
            self._queue(self._controls, build_frame(frame.payload, opcode=Opcode.PONG))
        elif frame.opcode is Opcode.CLOSE:
            if not self._is_closed and not self._close:
                self._queue(self._controls, build_frame(frame.payload, opcode=Opcode.CLOSE))
            self._is_closed = self._client.has_closed = True
            self._client.transport.close()
            self._end()

    def _from_browser(self, piece: Piece) -> None:
        if self._only_watches and not isinstance(piece, Control):
            pass  # watching keeps no browser awake
        elif isinstance(piece, Message):
            self._use.note_traffic()
            self._take_message(piece)
        elif isinstance(piece, Control):
            if piece.opcode is Opcode.PING:
                self._browser.send(build_frame(piece.payload, opcode=Opcode.PONG, masked=True))
                return
            self._is_closed |= piece.opcode is Opcode.CLOSE
        else:
            self._use.note_traffic()
            if _starts_response(piece.raw):
                self._count(-1)
        self._client.send(piece.raw)
        if self._queued:
            self._flush()

    def _take_message(self, message: Message) -> None:
        if message.payload.startswith(_RESPONSE):
            self._count(-1)
        if self._records:
            self._policy.record(Direction.BROWSER, message.payload, self._page_id)

    def _count(self, more: int) -> None:
        pending = self._pending + more
        self._pending = max(0, pending)
        self._use.note_pending(self._pending)

    def _to_browser(self, data: bytes) -> None:
        if self._waking is None and self._use.is_ready:
            self._browser.send(data)
            self._use.note_traffic()
            return
        self._waiting.append(data)
        if self._waking is None:
            self._client.stop_reading()
            self._waking = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        try:
            await self._use.wake()
        except SandboxError as error:
            self.close(Close(1011, str(error)))
            return
        finally:
            self._waking = None
            self._client.read_on()
        waiting, self._waiting = self._waiting, []
        self._browser.send(b"".join(waiting))

    def _queue(self, frames: deque[bytes], frame: bytes) -> None:
        """Send a frame of this proxy to the client, once the browser's current one is complete."""
        frames.append(frame)
        self._queued += len(frame)
        self._flush()
        if self._queued + self._client.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.close(FLOODED)

    def _flush(self) -> None:
        reader = self._browser.reader
        while self._controls and reader.is_between_frames:
            self._send_queued(self._controls)
        while self._answers and reader.is_between_messages:
            self._send_queued(self._answers)

    def _send_queued(self, frames: deque[bytes]) -> None:
        frame = frames.popleft()
        self._queued -= len(frame)
        self._client.send(frame)

    async def _ping(self) -> None:
        """Find out when the client has disappeared."""
        silent = unsent = 0
        while silent < _SILENT_PINGS:
            await asyncio.sleep(self._ping_every.total_seconds())
            before, unsent = unsent, self._client.transport.get_write_buffer_size()
            is_alive = self._client.heard or self._client.is_stopped or unsent < before
            silent = 0 if is_alive else silent + 1
            self._client.heard = False
            self._queue(self._controls, build_frame(b"", opcode=Opcode.PING))
        self._client.transport.abort()


def _starts_response(raw: bytes) -> bool:
    """Return whether a piece of a large message is its beginning, and that a response's."""
    return _RESPONSE in raw[:24]
