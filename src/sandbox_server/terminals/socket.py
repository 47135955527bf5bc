import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnected

from sandbox_client.models import ERROR_CODES, READ_CONTROL, TerminalResize
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.db.models import Command
from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.commands import TerminalSize
from sandbox_server.domain.errors import (
    ControlNotUnderstood,
    NotReady,
    SandboxError,
    SandboxNotFound,
    SandboxPaused,
    ScopeMissing,
    Unauthenticated,
)
from sandbox_server.domain.state import State
from sandbox_server.http.faults import NO_DATABASE
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.terminals.service import Terminals
from sandbox_server.terminals.view import Frame

SEND_TIMEOUT = timedelta(seconds=15)
RECHECK_EVERY = timedelta(seconds=2)

_LOST = 1006
"""The close code of a connection that was lost, by RFC 6455."""


@dataclass(frozen=True)
class CloseReason:
    """Close code and reason of a WebSocket."""

    code: int
    reason: str


ENDED = CloseReason(1000, "The terminal has ended.")
GOING_AWAY = CloseReason(1001, "The server is stopping: reconnect with `after`.")
BROKEN = CloseReason(1011, "The database is unavailable: reconnect with `after`.")
REFUSED = CloseReason(4401, "The key or ticket is no longer valid.")
STALLED = CloseReason(4408, "The client reads too slowly: reconnect with `after`.")


class _Closed(Exception):
    """Ends the connection with a reason."""

    def __init__(self, close: CloseReason) -> None:
        super().__init__(close.reason)
        self.close = close


class TerminalSocket:
    """One viewer's WebSocket to a terminal."""

    def __init__(
        self,
        socket: WebSocket,
        controller: SandboxController,
        callers: Authenticator,
        terminals: Terminals,
        caller: Caller,
        row: Command,
    ) -> None:
        self._socket = socket
        self._controller = controller
        self._callers = callers
        self._terminals = terminals
        self._caller = caller
        self._row = row
        self._requested_size: TerminalSize | None = None
        self._attached = asyncio.Event()

    async def serve(self, *, after: int | None) -> None:
        """Serve the viewer until it disconnects or the terminal ends."""
        await self._socket.accept()
        try:
            async with asyncio.TaskGroup() as group:
                for task in (
                    self._send_output(after),
                    self._receive_frames(),
                    self._send_states(),
                    self._recheck(),
                ):
                    group.create_task(task)
        except* WebSocketDisconnect:
            pass
        except* OUTAGES:
            await self._close(BROKEN)
        except* _Closed as closed:
            [ending, *_] = closed.exceptions
            assert isinstance(ending, _Closed)
            await self._close(ending.close)

    async def _send_output(self, after: int | None) -> NoReturn:
        view = await self._terminals.view(self._row, after=after)
        size = {"cols": self._row.cols, "rows": self._row.rows}
        await self._send(
            {"type": "attached", "offset": view.offset, **size, "state": self._row.state}
        )
        self._attached.set()
        async with aclosing(view.frames()) as frames:
            async for frame in frames:
                await self._send(frame)
        raise _Closed(ENDED if view.has_ended else GOING_AWAY)

    async def _receive_frames(self) -> NoReturn:
        await self._attached.wait()
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            content, text = message.get("bytes"), message.get("text") or ""
            try:
                await (self._handle_control(text) if content is None else self._type(content))
            except SandboxError as error:
                await self._send_problem(error.code, str(error))
            except OUTAGES:
                await self._send_problem(NO_DATABASE.code, NO_DATABASE.detail)

    async def _type(self, content: bytes) -> None:
        self._caller.require(Scope.SANDBOXES)
        await self._terminals.type(self._caller, self._row.sandbox_id, self._row.id, content)

    async def _handle_control(self, text: str) -> None:
        try:
            control = READ_CONTROL.validate_json(text)
        except ValidationError as error:
            raise ControlNotUnderstood(error.errors()[0]["msg"]) from None
        if isinstance(control, TerminalResize):
            self._caller.require(Scope.SANDBOXES)
            self._requested_size = TerminalSize(cols=control.cols, rows=control.rows)
            await self._resize()
        else:
            await self._send({"type": "pong"})

    async def _resize(self) -> None:
        """Apply the size requested last. If the sandbox does not run, it is applied when it runs again."""
        size = self._requested_size
        if size is None:
            return
        with suppress(NotReady, SandboxPaused):
            await self._terminals.resize(self._caller, self._row.sandbox_id, self._row.id, size)
            if self._requested_size is size:
                self._requested_size = None

    async def _send_states(self) -> None:
        """Send state changes of the sandbox. A paused sandbox shows no output until there is input."""
        await self._attached.wait()
        with suppress(SandboxNotFound):
            states = self._controller.follow(self._caller, self._row.sandbox_id)
            async with aclosing(states):
                async for row in states:
                    await self._send({"type": "sandbox", "state": row.state})
                    if row.state is State.RUNNING:
                        with suppress(SandboxError):
                            await self._resize()

    async def _recheck(self) -> NoReturn:
        while True:
            await asyncio.sleep(RECHECK_EVERY.total_seconds())
            try:
                self._caller = await self._callers.recheck(self._caller)
                self._caller.require(Scope.READ)
            except (Unauthenticated, ScopeMissing):
                raise _Closed(REFUSED) from None
            except OUTAGES:
                continue

    async def _send_problem(self, code: str, detail: str) -> None:
        title = ERROR_CODES[code].title
        await self._send({"type": "problem", "code": code, "title": title, "detail": detail})

    async def _send(self, frame: Frame) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT.total_seconds()):
                await send_frame(self._socket, frame)
        except TimeoutError:
            raise _Closed(STALLED) from None

    async def _close(self, close: CloseReason) -> None:
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(SEND_TIMEOUT.total_seconds() / 4):
                await self._socket.close(close.code, close.reason)


async def send_frame(socket: WebSocket, frame: Frame) -> None:
    """Send output or an event; raises `WebSocketDisconnect` if the viewer is gone."""
    try:
        await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_json(frame))
    except WebSocketDisconnected:  # another sender has found out
        raise WebSocketDisconnect(_LOST) from None
