"""The web pages at `/` and, for links to desktops, `/desktop/{sandbox_id}`: static files of this package, without external resources."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.http.deps import find_component
from sandbox_server.settings import Settings
from sandbox_server.web.assets import READING, Asset, answer, read_assets

router = APIRouter(include_in_schema=False)

_INDEX = "index.html"
# Only scripts and styles from our own files: names and output of sandboxes cannot inject code.
_SCRIPTS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; "
)
_POLICY = _SCRIPTS + "frame-ancestors 'none'"


@router.api_route("/", methods=READING)
async def show_page(request: Request) -> Response:
    return _answer(request, _INDEX)


@router.api_route("/page/{name:path}", methods=READING)
async def show_file(name: str, request: Request) -> Response:
    return _answer(request, name)


@router.api_route("/desktop/{sandbox_id}", methods=READING)
async def show_desktop(sandbox_id: str, request: Request) -> Response:
    """Show the page of a link to a desktop. It can be framed by our own pages and by allowed origins."""
    del sandbox_id  # the link's, which was checked
    caller = request.state.caller
    if not isinstance(caller, TicketCaller) or not caller.scope.is_of_desktop:
        raise TicketRefused("This page is opened by a link to the desktop.")
    allowed = find_component(request.scope, Settings).allowed_origins
    ancestors = " ".join(["'self'", *allowed])
    return _answer(request, "desktop.html", policy=f"{_SCRIPTS}frame-ancestors {ancestors}")


def _answer(request: Request, name: str, *, policy: str = _POLICY) -> Response:
    asset = _assets().get(name)
    if asset is None:
        raise HTTPException(404)
    return answer(request, asset, policy=policy)


@cache
def _assets() -> Mapping[str, Asset]:
    """Read all files once; third-party files are in `vendor`, if they were installed."""
    return read_assets(files("sandbox_server").joinpath("web", "page"))
