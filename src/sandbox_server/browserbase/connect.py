"""`/browserbase/connect`: one URL with an API key, for clients that create no session before they connect."""

from datetime import timedelta
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from sandbox_server.browserbase.models import SessionBody
from sandbox_server.browserbase.requests import read_session_request
from sandbox_server.browsers.cdp.proxy import CdpProxy, CdpRequest
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.browsers.tokens import BrowserUse, in_a_while
from sandbox_server.browsers.urls import BrowserLinks
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.access import Caller
from sandbox_server.domain.access import Scope as KeyScope
from sandbox_server.domain.computers.browsers import is_session_id
from sandbox_server.domain.errors import BrowserSessionNotFound, SandboxError
from sandbox_server.http.deps import find_component
from sandbox_server.http.request_metrics import NamedRoute
from sandbox_server.proxy.client import Client
from sandbox_server.structured_logging import add_to_log_context

CONNECT_ROUTE = "/browserbase/connect{rest:path}"

_ROUTE = NamedRoute(CONNECT_ROUTE)
_PATH = "/browserbase/connect"
_WAIT = timedelta(minutes=2)


class ConnectRoute:
    """ASGI app that connects a driver to the session that it names, or to a new one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = _ROUTE
        caller: Caller = scope["state"]["caller"]
        caller.require(KeyScope.SANDBOXES)
        query = {
            name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()
        }
        scope["query_string"] = b""  # is not the browser's
        browsers = find_component(scope, BrowserSessions)
        named = query.get("sessionId")
        row = await _find_or_create(browsers, caller, named, query)
        add_to_log_context(sandbox_id=row.sandbox_id)
        try:
            await find_component(scope, CdpProxy).serve(
                _request(Client(scope, receive, send), caller, row)
            )
        except SandboxError as error:
            if named is None:
                await browsers.release(
                    caller, row.id, reason=f"The driver did not connect: {error}"
                )
            raise


async def _find_or_create(
    browsers: BrowserSessions, caller: Caller, session_id: str | None, query: dict[str, str]
) -> BrowserSession:
    if session_id is None:
        wanted = SessionBody(proxies=True) if query.get("enableProxy") == "true" else SessionBody()
        return await browsers.create(caller, read_session_request(wanted), wait=_WAIT)
    if not is_session_id(session_id):
        raise BrowserSessionNotFound(session_id)
    return await browsers.get(caller, session_id)


def _request(client: Client, caller: Caller, row: BrowserSession) -> CdpRequest:
    links = find_component(client.scope, BrowserLinks)
    base = links.base(caller, row.sandbox_id, BrowserUse.DRIVE, expires_at=in_a_while(row.timeout))
    return CdpRequest(
        client=client,
        caller=caller,
        sandbox_id=row.sandbox_id,
        path=client.scope["raw_path"].decode("ascii").removeprefix(_PATH),
        base=base,
    )
