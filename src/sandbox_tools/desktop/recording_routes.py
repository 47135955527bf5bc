import asyncio
import math
from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from sandbox_tools.desktop.bodies import read_body
from sandbox_tools.desktop.recordings import Recordings
from sandbox_tools.desktop.requests import RecordingRequest

_MOST_FRAGMENTS = 32 << 20
_LONGEST_OFFSET = 12


class RecordingRoutes:
    """The routes below `/recordings`."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    def routes(self) -> list[Route]:
        return [
            Route("/recordings", self._start, methods=["POST"]),
            Route("/recordings", self._list),
            Route("/recordings/current", self._stop, methods=["DELETE"]),
            Route("/recordings/{recording}", self._delete, methods=["DELETE"]),
            Route("/recordings/{recording}", self._download),
            Route("/recordings/{recording}/frames", self._frame),
            Route("/recordings/{recording}/fragments", self._fragments),
        ]

    async def _start(self, request: Request) -> Response:
        wanted = await read_body(request, RecordingRequest)
        return JSONResponse(await self._recordings.start(wanted.fps), 201)

    async def _list(self, request: Request) -> Response:
        found = self._recordings.list_all(with_current="current" in request.query_params)
        return JSONResponse([asdict(recording) for recording in found])

    async def _stop(self, _request: Request) -> Response:
        return JSONResponse(asdict(await self._recordings.stop()))

    async def _delete(self, request: Request) -> Response:
        self._recordings.delete(request.path_params["recording"])
        return Response(status_code=204)

    async def _download(self, request: Request) -> Response:
        path = self._recordings.find_file(request.path_params["recording"])
        return FileResponse(path, media_type="video/mp4")

    async def _fragments(self, request: Request) -> Response:
        offset = request.query_params.get("offset", "0")
        if not (offset.isascii() and offset.isdigit() and len(offset) <= _LONGEST_OFFSET):
            raise HTTPException(422, "offset is a position in the file, 0 or more.")
        recording = request.path_params["recording"]
        content = await asyncio.to_thread(
            self._recordings.read_fragments, recording, int(offset), _MOST_FRAGMENTS
        )
        return Response(content, media_type="video/mp4")

    async def _frame(self, request: Request) -> Response:
        try:
            at = float(request.query_params.get("at_s", ""))
        except ValueError:
            at = math.nan
        if not 0 <= at < math.inf:
            raise HTTPException(422, "at_s is the second of the recording, 0 or more.")
        frame = await self._recordings.frame(request.path_params["recording"], at)
        return Response(frame, media_type="image/jpeg")
