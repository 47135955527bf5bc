import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

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

STALLED_AFTER = timedelta(seconds=15)
RECHECK_EVERY = timedelta(seconds=2)


@dataclass(frozen=True)
class Close:
    """Why a connection ends, as its other side is told."""

    code: int
    reason: str


ENDED = Close(1000, "The terminal has ended.")
GOING_AWAY = Close(1001, "The server stops: attach again with `after`.")
BROKEN = Close(1011, "The database does not answer: attach again with `after`.")
REFUSED = Close(4401, "The key or ticket does not hold any more.")
STALLED = Close(4408, "What was sent was not read: attach again with `after`.")


class _Over(Exception):
    """The connection ends for this reason."""

    def __init__(self, close: Close) -> None:
        super().__init__(close.reason)
        self.close = close


class TerminalSocket:
    """One viewer's connection to a terminal: what it shows goes one way, what is typed the other."""

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
        self._wanted: TerminalSize | None = None
        self._attached = asyncio.Event()

    async def serve(self, *, after: int | None) -> None:
        """Serve the viewer until one of the two is gone."""
        await self._socket.accept()
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self._show(after), self._take(), self._watch(), self._recheck()):
                    group.create_task(work)
        except* WebSocketDisconnect:
            pass
        except* OUTAGES:
            await self._close(BROKEN)
        except* _Over as over:
            [ending, *_] = over.exceptions
            assert isinstance(ending, _Over)
            await self._close(ending.close)

    async def _show(self, after: int | None) -> NoReturn:
        view = await self._terminals.view(self._row, after=after)
        size = {"cols": self._row.cols, "rows": self._row.rows}
        await self._send(
            {"type": "attached", "offset": view.offset, **size, "state": self._row.state}
        )
        self._attached.set()
        async with aclosing(view.frames()) as frames:
            async for frame in frames:
                await self._send(frame)
        raise _Over(ENDED if view.has_ended else GOING_AWAY)

    async def _take(self) -> NoReturn:
        await self._attached.wait()
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            typed, said = message.get("bytes"), message.get("text") or ""
            try:
                await (self._heed(said) if typed is None else self._type(typed))
            except SandboxError as error:
                await self._tell_problem(error.code, str(error))
            except OUTAGES:
                await self._tell_problem(NO_DATABASE.code, NO_DATABASE.detail)

    async def _type(self, typed: bytes) -> None:
        self._caller.require(Scope.SANDBOXES)
        await self._terminals.type(self._caller, self._row.sandbox_id, self._row.id, typed)

    async def _heed(self, said: str) -> None:
        try:
            control = READ_CONTROL.validate_json(said)
        except ValidationError as error:
            raise ControlNotUnderstood(error.errors()[0]["msg"]) from None
        if isinstance(control, TerminalResize):
            self._caller.require(Scope.SANDBOXES)
            self._wanted = TerminalSize(cols=control.cols, rows=control.rows)
            await self._resize()
        else:
            await self._send({"type": "pong"})

    async def _resize(self) -> None:
        """Give the terminal the size that was wanted last; where the sandbox does not run, once it does."""
        wanted = self._wanted
        if wanted is None:
            return
        with suppress(NotReady, SandboxPaused):
            await self._terminals.resize(self._caller, self._row.sandbox_id, self._row.id, wanted)
            if self._wanted is wanted:
                self._wanted = None

    async def _watch(self) -> None:
        """Tell what becomes of the sandbox: a paused one shows nothing until somebody types."""
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
                raise _Over(REFUSED) from None
            except OUTAGES:
                continue

    async def _tell_problem(self, code: str, detail: str) -> None:
        title = ERROR_CODES[code].title
        await self._send({"type": "problem", "code": code, "title": title, "detail": detail})

    async def _send(self, frame: Frame) -> None:
        try:
            async with asyncio.timeout(STALLED_AFTER.total_seconds()):
                if isinstance(frame, bytes):
                    await self._socket.send_bytes(frame)
                else:
                    await self._socket.send_json(frame)
        except TimeoutError:
            raise _Over(STALLED) from None

    async def _close(self, close: Close) -> None:
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(STALLED_AFTER.total_seconds() / 4):
                await self._socket.close(close.code, close.reason)
