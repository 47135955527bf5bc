"""The web pages at `/` and, for links to desktops, `/desktop/{sandbox_id}`: static files of this package, without external resources."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.http.deps import find_component
from sandbox_server.settings import Settings

router = APIRouter(include_in_schema=False)

_INDEX = "index.html"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
# Only scripts and styles from our own files: names and output of sandboxes cannot inject code.
_SCRIPTS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; "
)
_POLICY = _SCRIPTS + "frame-ancestors 'none'"
_READING = ["GET", "HEAD"]


@dataclass(frozen=True)
class Asset:
    """A file of the page, with an ETag of its content."""

    content: bytes
    media_type: str
    etag: str


@router.api_route("/", methods=_READING)
async def show_page(request: Request) -> Response:
    return _answer(request, _INDEX)


@router.api_route("/page/{name:path}", methods=_READING)
async def show_file(name: str, request: Request) -> Response:
    return _answer(request, name)


@router.api_route("/desktop/{sandbox_id}", methods=_READING)
async def show_desktop(sandbox_id: str, request: Request) -> Response:
    """Show the page of a link to a desktop. It can be framed by our own pages and by allowed origins."""
    del sandbox_id  # the link's, which was checked
    caller = request.state.caller
    if not isinstance(caller, TicketCaller) or not caller.scope.is_of_desktop:
        raise TicketRefused("This page is opened by a link to the desktop.")
    allowed = find_component(request.scope, Settings).allowed_origins
    answer = _answer(request, "desktop.html")
    ancestors = " ".join(["'self'", *allowed])
    answer.headers["Content-Security-Policy"] = f"{_SCRIPTS}frame-ancestors {ancestors}"
    return answer


def _answer(request: Request, name: str) -> Response:
    asset = _assets().get(name)
    if asset is None:
        raise HTTPException(404)
    # Revalidated on every load: a page must not mix files of two versions.
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "ETag": asset.etag,
    }
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


@cache
def _assets() -> Mapping[str, Asset]:
    """Read all files once; third-party files are in `vendor`, if they were installed."""
    return dict(_read(files("sandbox_server").joinpath("web", "page")))


def _read(directory: Traversable, above: str = "") -> Iterator[tuple[str, Asset]]:
    for entry in directory.iterdir():
        name = f"{above}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif media_type := _TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name, Asset(content, media_type, etag)
