"""People who look at the desktop, each with a connection of their own to Xvnc."""

import asyncio
import contextlib
import logging
from pathlib import Path

from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox_tools.desktop.control import Control
from sandbox_tools.desktop.rfb import DisplayUnavailable, open_socket
from sandbox_tools.desktop.viewer_filter import ProtocolViolation, ViewerFilter

_log = logging.getLogger(__name__)

_MOST_VIEWERS = 20
_CHUNK_BYTES = 64 << 10
_POLICY_VIOLATION, _TRY_AGAIN = 1008, 1013


class Viewers:
    """Relays RFB between viewers and Xvnc. A viewer that does not read is disconnected; until then only its own bytes wait."""

    def __init__(self, socket: Path, control: Control, *, stall_seconds: float) -> None:
        self._socket = socket
        self._control = control
        self._stall_seconds = stall_seconds
        self.count = 0

    async def serve(self, socket: WebSocket, *, may_control: bool) -> None:
        await socket.accept(subprotocol=_subprotocol(socket))
        if self.count >= _MOST_VIEWERS:
            await socket.close(_TRY_AGAIN, f"{_MOST_VIEWERS} viewers are connected already.")
            return
        self.count += 1
        try:
            code, reason = await self._relay(socket, may_control=may_control)
        finally:
            self.count -= 1
        with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
            # A viewer that does not read would not answer either.
            async with asyncio.timeout(1):
                await socket.close(code, reason)

    async def _relay(self, socket: WebSocket, *, may_control: bool) -> tuple[int, str]:
        try:
            reader, writer = await open_socket(self._socket)
        except DisplayUnavailable as error:
            return _TRY_AGAIN, str(error)
        filtered = ViewerFilter(lambda: may_control and self._control.is_with_person)
        forget = self._control.on_return(lambda: writer.write(filtered.release()))
        directions = [
            asyncio.create_task(self._send_pixels(reader, socket)),
            asyncio.create_task(_pass_requests(socket, filtered, writer)),
        ]
        try:
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            forget()
            writer.close()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _send_pixels(
        self, reader: asyncio.StreamReader, socket: WebSocket
    ) -> tuple[int, str]:
        while chunk := await reader.read(_CHUNK_BYTES):
            try:
                async with asyncio.timeout(self._stall_seconds):
                    await socket.send_bytes(chunk)
            except TimeoutError:
                _log.warning("viewer_stalled seconds=%s", self._stall_seconds)
                return _POLICY_VIOLATION, f"The viewer read nothing for {self._stall_seconds:g} s."
            except (WebSocketDisconnect, RuntimeError):
                break
        return _TRY_AGAIN, "The display ended the connection."


async def _pass_requests(
    socket: WebSocket, filtered: ViewerFilter, writer: asyncio.StreamWriter
) -> tuple[int, str]:
    try:
        while True:
            writer.write(filtered.pass_on(await socket.receive_bytes()))
            await writer.drain()
    except ProtocolViolation as error:
        return _POLICY_VIOLATION, str(error)
    except KeyError:
        return _POLICY_VIOLATION, "The viewer sent text; RFB is binary."
    except (WebSocketDisconnect, OSError):
        return _TRY_AGAIN, "The connection ended."


def _subprotocol(socket: WebSocket) -> str | None:
    return "binary" if "binary" in socket.scope.get("subprotocols", ()) else None
