from collections.abc import Iterable
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_engine.engine import Engine
from sandbox_engine.envd.access import SignedRequest, is_token, sign
from sandbox_engine.envd.app import EnvdApp
from sandbox_engine.http.routing import BadRoute, ControlApi, SandboxTraffic, route
from sandbox_engine.proxy.http import PortProxy
from sandbox_engine.proxy.pages import bad_route, sandbox_not_found
from sandbox_engine.proxy.tunnel import EXTENSION
from sandbox_engine.sandbox import Sandbox

ENVD_PORT = 49983


class App:
    """The engine's one port: its API, or traffic to a port of a sandbox, by the request's host."""

    def __init__(self, api: ASGIApp, engine: Engine, *, domain: str) -> None:
        self._api = api
        self._engine = engine
        self._domain = domain
        self._envds: WeakKeyDictionary[Sandbox, EnvdApp] = WeakKeyDictionary()
        self._proxies: WeakKeyDictionary[Sandbox, PortProxy] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._api(scope, receive, send)
            return
        try:
            target = route(scope["headers"], domain=self._domain)
        except BadRoute as error:
            await bad_route(str(error))(scope, receive, send)
            return
        match target:
            case SandboxTraffic(sandbox_id, port):
                await self._traffic(sandbox_id, port, scope, receive, send)
            case ControlApi():
                signer = find_signer(self._engine.running(), scope)
                app = self._api if signer is None else self._envd(signer)
                await app(scope, receive, send)

    async def _traffic(
        self, sandbox_id: str, port: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        sandbox = self._engine.find_running(sandbox_id)
        if sandbox is None:
            await sandbox_not_found(sandbox_id)(scope, receive, send)
        elif port == ENVD_PORT:
            with sandbox.serving(scope["extensions"][EXTENSION]["connection"]):
                await self._envd(sandbox)(scope, receive, send)
        else:
            await self._proxy(sandbox)(scope, receive, send, port=port)

    def _envd(self, sandbox: Sandbox) -> EnvdApp:
        if sandbox not in self._envds:
            self._envds[sandbox] = EnvdApp(sandbox)
        return self._envds[sandbox]

    def _proxy(self, sandbox: Sandbox) -> PortProxy:
        if sandbox not in self._proxies:
            proxy = PortProxy(sandbox.dial, sandbox_id=sandbox.id)
            self._proxies[sandbox] = proxy
            sandbox.on_cut(proxy.close)
        return self._proxies[sandbox]


def find_signer(running: Iterable[Sandbox], scope: Scope) -> Sandbox | None:
    """Find the sandbox whose token signed a request for a file.

    The SDK's signed URLs name no sandbox when all sandboxes share one address.
    """
    if scope["path"] != "/files" or b"signature=" not in scope["query_string"]:
        return None
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
    request = SignedRequest(
        path=query.get("path", ""),
        operation="read" if scope["method"] in ("GET", "HEAD") else "write",
        username=query.get("username", ""),
        signature=query.get("signature"),
        expiration=query.get("signature_expiration"),
    )
    given = query.get("signature", "")
    try:
        return next(
            (one for one in running if is_token(sign(request, one.access_token), given)), None
        )
    except ValueError:
        return None
