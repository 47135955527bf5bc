import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from websockets.frames import Opcode

from sandbox_server.browsers.cdp.frames import (
    Control,
    FrameError,
    FrameReader,
    Message,
    build_frame,
)

LARGEST_MESSAGE = 16 * 2**20
"""Larger messages are skipped."""

_TIMEOUT = timedelta(seconds=30)

OnEvent = Callable[[str, Mapping[str, Any], str | None], None]


class CdpFailure(Exception):
    """The browser refused a command, or the connection ended before its response."""


class CdpClient(asyncio.Protocol):
    """A connection of this server to a browser, beside those of its drivers.

    Events arrive with the id of the attached target's session, None for those of the browser.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self.closed = asyncio.Event()
        self._on_event = on_event
        self._transport: asyncio.Transport
        self._reader = FrameReader(limit=LARGEST_MESSAGE)
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        timeout: timedelta = _TIMEOUT,
    ) -> Mapping[str, Any]:
        """Send a command and return its result."""
        number = self.send(method, params, session_id=session_id)
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            if self.closed.is_set():
                raise CdpFailure("The connection to the browser has ended.")
            async with asyncio.timeout(timeout.total_seconds()):
                return await answer
        except TimeoutError:
            raise CdpFailure(f"The browser did not answer {method}.") from None
        finally:
            del self._waiting[number]

    def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
    ) -> int:
        """Send a command whose response is of no interest; returns its id."""
        self._last_id += 1
        command: dict[str, Any] = {"id": self._last_id, "method": method, "params": params or {}}
        if session_id is not None:
            command["sessionId"] = session_id
        if not self._transport.is_closing():
            self._transport.write(build_frame(json.dumps(command).encode(), masked=True))
        return self._last_id

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for piece in self._reader.feed(data):
                if isinstance(piece, Message):
                    self._take(piece.payload)
                elif isinstance(piece, Control):
                    self._take_control(piece)
        except FrameError:
            self._transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(CdpFailure("The connection to the browser has ended."))

    def _take_control(self, frame: Control) -> None:
        if frame.opcode is Opcode.PING:
            self._transport.write(build_frame(frame.payload, opcode=Opcode.PONG, masked=True))
        elif frame.opcode is Opcode.CLOSE:
            self._transport.close()

    def _take(self, payload: bytes) -> None:
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if "id" in message:
            self._answer(message)
        elif isinstance(method := message.get("method"), str):
            params = message.get("params")
            self._on_event(
                method, params if isinstance(params, dict) else {}, message.get("sessionId")
            )

    def _answer(self, message: Mapping[str, Any]) -> None:
        answer = self._waiting.get(message["id"]) if isinstance(message["id"], int) else None
        if answer is None or answer.done():
            return
        result = message.get("result")
        if isinstance(result, dict):
            answer.set_result(result)
        else:
            error = message.get("error")
            reason = error.get("message") if isinstance(error, dict) else None
            answer.set_exception(CdpFailure(str(reason or "The browser refused the command.")))
