"""The web interface at `/ui/`: the files that `scripts/web` builds from the directory `web`."""

from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from sandbox_server.http.assets import IMMUTABLE, READING, Asset, answer, read_assets

router = APIRouter(include_in_schema=False)

_INDEX = "index.html"
_HASHED = "assets/"
# Only scripts and styles from our own files: names and output of sandboxes cannot inject code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types workers"
)
_NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>sandbox-server</title>
<h1>The web interface is being built</h1>
<p>This page reloads by itself. If it stays, run <code>scripts/web</code> in the checkout: it needs npm's registry and says what failed.</p>
<p>Meanwhile: <a href="../">the first page</a>, and <a href="../docs">the API</a>.</p>
</html>
"""


@router.api_route("/ui", methods=READING)
async def redirect_to_interface() -> Response:
    return RedirectResponse("ui/")


@router.api_route("/ui/{name:path}", methods=READING)
async def show_interface(name: str, request: Request) -> Response:
    built = _BUILT.find()
    if built is None:
        if name:
            raise HTTPException(404)
        return HTMLResponse(_NOT_BUILT, 503, {"Retry-After": "5", "Cache-Control": "no-store"})
    asset = built.get(name or _INDEX)
    if asset is None:
        raise HTTPException(404)
    if name.startswith(_HASHED):
        return answer(request, asset, policy=_POLICY, cache_control=IMMUTABLE)
    return answer(request, asset, policy=_POLICY)


class _Built:
    """The built files, read when there are some; the build may run while the server starts."""

    def __init__(self) -> None:
        self._assets: Mapping[str, Asset] | None = None

    def find(self) -> Mapping[str, Asset] | None:
        if self._assets is None:
            directory = files("sandbox_server").joinpath("web", "built")
            if directory.joinpath(_INDEX).is_file():
                self._assets = read_assets(directory)
        return self._assets


_BUILT = _Built()
