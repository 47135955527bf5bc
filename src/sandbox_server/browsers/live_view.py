"""The page that shows a browser to people, on the sandbox's own host and below the token of its link."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from sandbox_server.browsers.cdp.proxy import CdpProxy, CdpRequest
from sandbox_server.browsers.tokens import BrowserCaller, BrowserUse
from sandbox_server.browsers.urls import front_end_url
from sandbox_server.domain.errors import BrowserNotRunning, BrowserPathNotFound, TicketRefused
from sandbox_server.http.assets import answer_page_file, find_page_file
from sandbox_server.sandboxes.service import SandboxController

LIVE_PATH = "/live"

_SEE_OTHER = 303
_FILES = frozenset(
    {"live.css", "live.js", "live-connection.js", "live-input.js", "desktop.css", "icon.svg"}
)


class LiveView:
    """Answers requests of the page. Its pictures and input pass as messages of the DevTools protocol."""

    def __init__(
        self, controller: SandboxController, proxy: CdpProxy, *, allowed_origins: Sequence[str]
    ) -> None:
        self._controller = controller
        self._proxy = proxy
        self._allowed_origins = tuple(allowed_origins)

    def covers(self, path: str) -> bool:
        return path == LIVE_PATH or path.startswith(f"{LIVE_PATH}/")

    async def answer(self, request: CdpRequest, caller: BrowserCaller) -> Response:
        match request.path.removeprefix(LIVE_PATH).removeprefix("/"):
            case "":
                response = self._file(request, "live.html")
            case "state":
                response = JSONResponse(await self._describe(caller))
                response.headers["Cache-Control"] = "no-store"
            case "devtools":
                response = await self._open_devtools(request, caller)
            case name if name in _FILES:
                response = self._file(request, name)
            case _:
                raise BrowserPathNotFound(request.path)
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    def _file(self, request: CdpRequest, name: str) -> Response:
        file = find_page_file(name)
        assert file is not None
        framed_by = ("'self'", *self._allowed_origins)
        return answer_page_file(Request(request.client.scope), file, framed_by=framed_by)

    async def _open_devtools(self, request: CdpRequest, caller: BrowserCaller) -> Response:
        """Redirect to DevTools of the first page."""
        if request.only_watches:
            raise TicketRefused("This link is for watching only.")
        targets = await self._proxy.list_targets(caller, caller.sandbox_id)
        page = next((each["id"] for each in targets if each.get("type") == "page"), None)
        if page is None:
            raise BrowserNotRunning
        answer = RedirectResponse(front_end_url(request.base, page), _SEE_OTHER)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _describe(self, caller: BrowserCaller) -> dict[str, str]:
        row = await self._controller.get(caller, caller.sandbox_id)
        mode = "view" if caller.use is BrowserUse.WATCH else "control"
        return {"mode": mode, "expires_at": caller.expires_at.isoformat(), "sandbox": row.state}
