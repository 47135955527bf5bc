"""noVNC's page and its WebSocket to a VNC port, as the e2b-desktop SDK starts them."""

import argparse
import asyncio
import contextlib
import mimetypes
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

_CHUNK_BYTES = 64 << 10
_STALL_SECONDS = 20
_MOST_MESSAGE = 2 << 20


class NoVnc:
    """Serves the files of a directory, and RFB to any path that a WebSocket asks for."""

    def __init__(self, directory: Path, host: str, port: int) -> None:
        self._directory = directory.resolve()
        self._host = host
        self._port = port

    async def serve(self, port: int) -> None:
        async with serve(
            self._relay,
            None,
            port,
            process_request=self._page,
            subprotocols=[Subprotocol("binary")],
            select_subprotocol=_binary_if_offered,
            compression=None,
            max_size=_MOST_MESSAGE,
            # A paused sandbox answers pings late; that is not a failure.
            ping_interval=None,
        ) as server:
            await server.serve_forever()

    def _page(self, connection: ServerConnection, request: Request) -> Response | None:
        if "Upgrade" in request.headers:
            return None
        # Links in the directory lead to where noVNC is installed.
        wanted = unquote(urlsplit(request.path).path).lstrip("/") or "vnc.html"
        path = self._directory / wanted
        if ".." in path.parts or "\0" in wanted or not path.is_file():
            return connection.respond(HTTPStatus.NOT_FOUND, "There is no such page.\n")
        response = connection.respond(HTTPStatus.OK, "")
        response.body = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(response.body)))):
            del response.headers[name]
            response.headers[name] = value
        return response

    async def _relay(self, viewer: ServerConnection) -> None:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            await viewer.close(1013, "The VNC server is not running.")
            return
        directions = [
            asyncio.create_task(_send(reader, viewer)),
            asyncio.create_task(_receive(viewer, writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writer.close()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)


async def _send(reader: asyncio.StreamReader, viewer: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed, OSError, TimeoutError):
        while chunk := await reader.read(_CHUNK_BYTES):
            async with asyncio.timeout(_STALL_SECONDS):
                await viewer.send(chunk)


async def _receive(viewer: ServerConnection, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionClosed, OSError):
        async for message in viewer:
            writer.write(message if isinstance(message, bytes) else message.encode())
            await writer.drain()


def _binary_if_offered(
    _connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    return Subprotocol("binary") if "binary" in offered else None


def main(arguments: Sequence[str]) -> int:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve-novnc")
    parser.add_argument("--vnc", default="localhost:5900")
    parser.add_argument("--listen", type=int, default=6080)
    parser.add_argument("--web", type=Path, default=Path("/usr/share/novnc"))
    options = parser.parse_args(arguments)
    host, _, port = options.vnc.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(NoVnc(options.web, host, int(port)).serve(options.listen))
    return 0
