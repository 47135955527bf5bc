"""Envd at 127.0.0.1:49983 inside a sandbox, where servers of E2B's templates ask it.

Any program in the sandbox may read `/health` and `/envs`. Pages in a browser there may not: a
request with an origin or another host than this one needs the sandbox's token, as all others do.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from sandbox_engine.envd.app import EnvdApp
from sandbox_engine.http.bounded_listener import BACKLOG, BoundedListener
from sandbox_engine.http.routing import ENVD_PORT
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.log import get_logger
from sandbox_http.tunnel import EXTENSION

log = get_logger(__name__)

_OWN_HOSTS = {
    f"{name}{port}" for name in ("127.0.0.1", "localhost") for port in ("", f":{ENVD_PORT}")
}


async def serve_inside(sandbox: Sandbox) -> None:
    """Serve envd inside a sandbox until its end."""
    try:
        socket = await sandbox.listen(ENVD_PORT, backlog=BACKLOG)
    except OSError as error:  # a program in there may have taken the port
        log.warning("envd is not reachable inside", id=sandbox.id, error=error)
        return
    listener = BoundedListener(_InsideApp(sandbox), socket)
    sandbox.on_disconnect(listener.cut)
    sandbox.on_end(listener.close)


class _InsideApp:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        envd = EnvdApp.of(self._sandbox)
        app = envd.envs if _may_read_envs(scope) else envd
        with self._sandbox.serving(scope["extensions"][EXTENSION]["connection"]):
            await app(scope, receive, _closing(send))


def _may_read_envs(scope: Scope) -> bool:
    if (scope["method"], scope["path"]) != ("GET", "/envs"):
        return False
    headers = Headers(scope=scope)
    return set(headers.getlist("host")) <= _OWN_HOSTS and "origin" not in headers


def _closing(send: Send) -> Send:
    """Close the connection after the response, as the listener requires."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["connection"] = "close"
        await send(message)

    return send_closing
