"""The web pages at `/` and, for links to desktops, `/desktop/{sandbox_id}`: static files of this package, without external resources."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.errors import TicketRefused
from sandbox_server.http.assets import READING, answer_page_file, find_page_file
from sandbox_server.http.deps import find_component
from sandbox_server.settings import Settings

router = APIRouter(include_in_schema=False)

_INDEX = "index.html"


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
    return _answer(request, "desktop.html", framed_by=("'self'", *allowed))


def _answer(request: Request, name: str, *, framed_by: tuple[str, ...] = ()) -> Response:
    file = find_page_file(name)
    if file is None:
        raise HTTPException(404)
    return answer_page_file(request, file, framed_by=framed_by)
