from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State

from sandbox_client import models
from sandbox_client._async.concurrency import Lock, sleep
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import SandboxError, StreamBroken, Unreachable
from sandbox_client.errors.parsing import error_of
from sandbox_client.events import TerminalAttached, TerminalEvent, TerminalExit, TerminalGap
from sandbox_client.events.parsing import read_terminal_event
from sandbox_client.protocol.calls import call
from sandbox_client.protocol.retries import Retries
from sandbox_client.protocol.websocket_close import should_reattach

_LARGEST_INPUT = 256 * 1024


class _Attachment:
    """One WebSocket connection and the offset of its next byte."""

    def __init__(self, socket: ClientConnection, stack: AsyncExitStack) -> None:
        self.socket = socket
        self.offset = 0
        self._held = stack

    @property
    def is_open(self) -> bool:
        return self.socket.state is State.OPEN

    async def close(self) -> None:
        await self._held.aclose()


class AsyncTerminal:
    """A terminal: output bytes and events.

    It connects on first use, and reconnects at the last byte received when the connection is lost.
    """

    def __init__(
        self, transport: AsyncTransport, record: models.TerminalRead, *, after: int | None = None
    ) -> None:
        self._transport = transport
        self._attachment: _Attachment | None = None
        self._attaching = Lock()
        self._lost: Retries | None = None
        self.record = record
        """The last known state."""
        self.id = record.id
        self.offset = after
        """Number of output bytes received."""

    async def __aenter__(self) -> Self:
        await self._attached()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[bytes | TerminalEvent, None]:
        """Stream output and events; TerminalExit is the last."""
        attachment = await self._attached()
        while True:
            try:
                message = await attachment.socket.recv()
            except ConnectionClosed as closed:
                await attachment.close()
                if not should_reattach(closed):
                    return
                await self._wait_after(attachment, closed)
                attachment = await self._attached(instead_of=attachment)
                continue
            self._lost = None
            event = self._handle(attachment, message)
            if isinstance(event, TerminalExit):
                await self.close()
                yield event
                return
            if event is not None:
                yield event

    async def send(self, content: bytes | str) -> None:
        """Send input; resumes a paused sandbox."""
        typed = content.encode() if isinstance(content, str) else content
        for begin in range(0, len(typed), _LARGEST_INPUT):
            await self._send(typed[begin : begin + _LARGEST_INPUT])

    async def resize(self, cols: int, rows: int) -> None:
        """Resize the terminal; applied when a paused sandbox resumes."""
        size = models.TerminalResize(type="resize", cols=cols, rows=rows)
        await self._send(size.model_dump_json())

    async def refresh(self) -> models.TerminalRead:
        """Fetch the current state."""
        self.record = await self._transport.fetch(
            models.TerminalRead, call("GET", self.record.path)
        )
        return self.record

    async def kill(self) -> None:
        """Kill the terminal and its processes."""
        await self._transport.delete(call("DELETE", self.record.path))

    async def close(self) -> None:
        """Detach; the terminal keeps running."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            await attachment.close()

    async def _send(self, message: bytes | str) -> None:
        attachment = await self._attached()
        if not attachment.is_open:
            attachment = await self._attached(instead_of=attachment)
        try:
            await attachment.socket.send(message)
        except ConnectionClosed as closed:
            raise StreamBroken(
                f"The connection was lost; the last input may not have arrived: {closed}."
            ) from None

    def _handle(
        self, attachment: _Attachment, message: bytes | str
    ) -> bytes | TerminalEvent | None:
        if isinstance(message, bytes):
            return self._show(attachment, message) or None
        event = read_terminal_event(message)
        if isinstance(event, TerminalAttached):
            attachment.offset = event.offset
            if self.offset is None:
                self.offset = event.offset
        elif isinstance(event, TerminalGap) and event.size is not None:
            attachment.offset = event.offset + event.size
            self.offset = max(self.offset or 0, attachment.offset)
        return event

    def _show(self, attachment: _Attachment, content: bytes) -> bytes:
        """Drop bytes that were received before."""
        begin, attachment.offset = attachment.offset, attachment.offset + len(content)
        shown = max(0, (self.offset or 0) - begin)
        self.offset = max(self.offset or 0, attachment.offset)
        return content[shown:]

    async def _attached(self, instead_of: _Attachment | None = None) -> _Attachment:
        """Return the connection; open one if there is none or it is `instead_of`."""
        async with self._attaching:
            while self._attachment is None or self._attachment is instead_of:
                try:
                    self._attachment = await self._attach()
                except SandboxError as error:
                    pause = self._outage().delay_after(error)
                    await sleep(pause)
            return self._attachment

    async def _attach(self) -> _Attachment:
        after = "" if self.offset is None else f"?after={self.offset}"
        address = self._transport.address
        stack = AsyncExitStack()
        connecting = connect(
            f"{address.websocket_url}{self.record.path}{after}",
            additional_headers=address.headers,
            ssl=self._transport.tls,
            open_timeout=self._transport.timeout,
            compression=None,
            max_size=None,
        )
        try:
            return _Attachment(await stack.enter_async_context(connecting), stack)
        except InvalidStatus as refused:
            response = refused.response
            raise error_of(response.status_code, response.headers, bytes(response.body)) from None
        except (OSError, InvalidHandshake) as error:
            raise Unreachable(address.url, str(error), was_sent=True) from error

    async def _wait_after(self, attachment: _Attachment, closed: ConnectionClosed) -> None:
        if self._attachment is attachment:  # no other task has reconnected yet
            error = Unreachable(self._transport.address.url, str(closed), was_sent=True)
            await sleep(self._outage().delay_after(error))

    def _outage(self) -> Retries:
        self._lost = self._lost or self._transport.retries(call("GET", self.record.path))
        return self._lost
