import argparse
import base64
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from sandbox_tools.desktop.actions import Actor, InvalidAction
from sandbox_tools.desktop.bodies import read_body
from sandbox_tools.desktop.control import Control, Holder, PersonHasControl
from sandbox_tools.desktop.display import DISPLAY, SOCKET, Display, InvalidDisplay
from sandbox_tools.desktop.images import Format
from sandbox_tools.desktop.recorder import RecorderUnavailable
from sandbox_tools.desktop.recording_routes import RecordingRoutes
from sandbox_tools.desktop.recordings import (
    MOST_BYTES,
    RecordingConflict,
    RecordingNotFound,
    Recordings,
)
from sandbox_tools.desktop.requests import ActionRequest, ControlRequest, DisplayRequest
from sandbox_tools.desktop.rfb import DisplayUnavailable
from sandbox_tools.desktop.viewers import Viewers
from sandbox_tools.toolkit.settings_file import PATH, SettingsFile
from sandbox_tools.toolkit.threads import run_in_thread

PORT = 49990
_MOST_MESSAGE = 2 << 20
_RECORDINGS = ".local/state/sandbox-desktop/recordings"
_QUALITY = re.compile("[1-9][0-9]?|100")
_FORMATS: dict[str, Format] = {"png": "png", "jpeg": "jpeg", "jpg": "jpeg"}
_STATUS: dict[type[Exception], int] = {
    InvalidAction: 422,
    InvalidDisplay: 422,
    PersonHasControl: 409,
    RecordingConflict: 409,
    RecordingNotFound: 404,
    RecorderUnavailable: 503,
    DisplayUnavailable: 503,
}


class DesktopService:
    """The routes of the desktop service; docs/desktop-service.md describes them."""

    def __init__(self, display: Display, recordings: Recordings, *, stall_seconds: float) -> None:
        self._display = display
        self._recordings = recordings
        self._control = Control()
        self._actor = Actor(display, self._control)
        self._viewers = Viewers(display.socket, self._control, stall_seconds=stall_seconds)

    def app(self, settings: SettingsFile) -> ASGIApp:
        app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/state", self._read_state),
                Route("/display", self._set_display, methods=["PUT"]),
                Route("/actions", self._act, methods=["POST"]),
                Route("/screenshot", self._screenshot),
                Route("/control", self._set_control, methods=["PUT"]),
                *RecordingRoutes(self._recordings).routes(),
                WebSocketRoute("/vnc", self._view),
            ],
            exception_handlers={kind: _problem(status) for kind, status in _STATUS.items()}
            | {HTTPException: _http_problem},
            lifespan=self._lifespan,
        )
        return TokenRequired(app, settings)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        await self._recordings.open()
        yield
        await self._recordings.close()
        await self._display.close()

    async def _health(self, _request: Request) -> Response:
        await self._display.screen()
        return JSONResponse({"ready": True})

    async def _read_state(self, _request: Request) -> Response:
        return JSONResponse(await self._state())

    async def _set_display(self, request: Request) -> Response:
        wanted = await read_body(request, DisplayRequest)
        await self._display.set_size(wanted.width, wanted.height, wanted.dpi)
        return JSONResponse(await self._state())

    async def _act(self, request: Request) -> Response:
        performed = await self._actor.perform(await read_body(request, ActionRequest))
        screen = performed.screen
        answer: dict[str, object] = {
            "cursor": list(screen.pointer),
            "width": screen.width,
            "height": screen.height,
        }
        if performed.png is not None:
            answer["screenshot"] = base64.b64encode(performed.png).decode()
        return JSONResponse(answer)

    async def _screenshot(self, request: Request) -> Response:
        form = _FORMATS.get(request.query_params.get("format", "png"))
        quality = request.query_params.get("quality", "80")
        if form is None:
            raise HTTPException(422, "The format of a screenshot is png or jpeg.")
        if not _QUALITY.fullmatch(quality):
            raise HTTPException(422, "The quality of a JPEG is 1 to 100.")
        picture = await self._display.picture()
        content = await run_in_thread(lambda _check: picture.encode(form, int(quality)))
        return Response(content, media_type=f"image/{form}", headers={"Cache-Control": "no-store"})

    async def _set_control(self, request: Request) -> Response:
        wanted = await read_body(request, ControlRequest)
        await self._control.pass_to(wanted.holder)
        return JSONResponse(await self._state())

    async def _view(self, socket: WebSocket) -> None:
        mode = socket.query_params.get("mode", "view")
        await self._viewers.serve(socket, may_control=mode == "control")

    async def _state(self) -> dict[str, object]:
        screen = await self._display.screen()
        return {
            "resolution": {"width": screen.width, "height": screen.height},
            "dpi": self._display.dpi,
            "control": Holder(self._control.holder).value,
            "recording": self._recordings.current,
            "viewers": self._viewers.count,
        }


class TokenRequired:
    """Lets only callers with the sandbox's token through, except to `/health`."""

    def __init__(self, app: ASGIApp, settings: SettingsFile) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health" or self._admits(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(1008, "Missing or invalid token.")
        else:
            detail = "Missing or invalid token. Send Authorization: Bearer TOKEN."
            await JSONResponse({"detail": detail}, 401)(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        token = self._settings.read().token
        sent = HTTPConnection(scope).headers.getlist("authorization")
        if token is None or len(sent) != 1:
            return False
        scheme, _, credential = sent[0].partition(" ")
        is_it = secrets.compare_digest(credential.strip().encode(), token.encode())
        return scheme.lower() == "bearer" and is_it


def _problem(status: int) -> Callable[[Request, Any], Awaitable[Response]]:
    async def answer(_request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status)

    return answer


async def _http_problem(_request: Request, error: Any) -> Response:
    return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve-desktop")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - requests need a token
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--settings", type=Path, default=PATH)
    parser.add_argument("--display", default=DISPLAY)
    parser.add_argument("--rfb", type=Path, default=SOCKET, help="Xvnc's Unix socket")
    parser.add_argument(
        "--stall-s", type=float, default=20, help="when a viewer that reads nothing is disconnected"
    )
    parser.add_argument("--recordings", type=Path, default=Path.home() / _RECORDINGS)
    parser.add_argument(
        "--most-recorded", type=int, default=MOST_BYTES, help="bytes of a recording"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    display = Display(options.display, options.rfb)
    recordings = Recordings(display, options.recordings, most_bytes=options.most_recorded)
    service = DesktopService(display, recordings, stall_seconds=options.stall_s)
    uvicorn.run(
        service.app(SettingsFile(options.settings)),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        ws_max_size=_MOST_MESSAGE,
        ws_per_message_deflate=False,
        # A paused sandbox answers pings late; that is not a failure.
        ws_ping_interval=None,
        timeout_graceful_shutdown=1,
    )
    return 0
