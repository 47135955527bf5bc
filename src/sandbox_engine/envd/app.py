from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response

from sandbox_engine.envd.cors import allowing_origins, preflight
from sandbox_engine.envd.files.body import BadEncoding, ClientLeft
from sandbox_engine.envd.files.download import FileTruncated
from sandbox_engine.envd.files.encodings import NotAcceptable
from sandbox_engine.envd.files.handlers import FileRoutes
from sandbox_engine.envd.files.multipart import BadForm
from sandbox_engine.envd.protocol.access import (
    AccessDenied,
    InvalidExpiration,
    basic_user,
    is_token,
)
from sandbox_engine.envd.protocol.metadata import InvalidMetadata
from sandbox_engine.envd.protocol.responses import FileError, error_answer
from sandbox_engine.envd.rpc import RpcRoutes
from sandbox_engine.http.error_pages import sandbox_not_found
from sandbox_engine.rootfs.accounts import UnknownUser
from sandbox_engine.rootfs.shared_descriptor import RootClosed
from sandbox_engine.system.file_threads import FileThreads

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sandbox_engine.sandboxes.sandbox import Sandbox

# Endpoints of the control plane that E2B's proxy also blocks from outside.
_RESERVED = {"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"}

# File requests may carry a signature instead of the token.
_WITHOUT_TOKEN = {("GET", "/health"), ("GET", "/files"), ("POST", "/files")}

_STATUS: dict[type[Exception], int] = {
    AccessDenied: 401,
    BadEncoding: 400,
    BadForm: 400,
    InvalidExpiration: 400,
    InvalidMetadata: 400,
    NotAcceptable: 406,
}


class EnvdApp:
    """E2B's in-sandbox daemon (port 49983), served from the host."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._workers = FileThreads()
        self._rpc = RpcRoutes(sandbox, self._workers)
        files = FileRoutes(sandbox, self._workers)
        self._routes: dict[str, dict[str, ASGIApp]] = {
            "/health": {"GET": self._health},
            "/metrics": {"GET": self._metrics},
            "/envs": {"GET": self.envs},
            "/files": {"GET": files.download, "HEAD": files.download, "POST": files.upload},
            "/files/compose": {"POST": files.compose},
        }

    @classmethod
    def of(cls, sandbox: Sandbox) -> EnvdApp:
        """Return the daemon of this run of the sandbox."""
        return sandbox.get_or_create(cls, lambda: cls(sandbox))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        headers = Headers(scope=scope)
        answer = preflight(scope["method"], headers)
        if answer is None:
            send = allowing_origins(send, headers)
            answer = self._refusal(scope, headers)
        await (answer or self._find(scope))(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        method, path = scope["method"], scope["path"]
        if path in _RESERVED:
            text = (
                "This endpoint is reserved for the E2B control plane and is not reachable "
                "through the sandbox URL"
            )
            return JSONResponse({"message": text, "path": path, "code": 404}, 404)
        token = self._sandbox.access_token
        if not token or (method, path) in _WITHOUT_TOKEN:
            return None
        if is_token(token, headers.get("x-access-token", "")):
            return None
        text = (
            "unauthorized access, please provide a valid access token or method signing "
            "if supported"
        )
        return error_answer(401, text)

    def _find(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        if (service := self._rpc.find(path)) is not None:
            return service
        methods = self._routes.get(path)
        if methods is None:
            return PlainTextResponse("404 page not found\n", 404)
        handler = methods.get(scope["method"])
        if handler is None:
            return Response(status_code=405, headers={"allow": ", ".join(methods)})
        return partial(self._run, handler)

    async def _run(self, handler: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Call a handler and convert errors to responses."""
        try:
            await self._require_known_user(Headers(scope=scope))
            await handler(scope, receive, send)
        except (FileTruncated, ClientLeft):
            return  # a truncated response tells the client
        except FileError as error:
            answer: ASGIApp = error_answer(error.status, error.message)
        except tuple(_STATUS) as error:
            answer = error_answer(_STATUS[type(error)], str(error))
        except UnknownUser as error:
            text = f"invalid username: '{error.name}'"
            answer = JSONResponse({"code": "unauthenticated", "message": text}, 401)
        except RootClosed:
            answer = sandbox_not_found(self._sandbox.id)
        else:
            return
        await answer(scope, receive, send)

    async def _require_known_user(self, headers: Headers) -> None:
        name = basic_user(headers.get("authorization"))
        if name is not None:
            await self._workers.run(lambda: self._sandbox.accounts.find(name))

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = Response(status_code=204, headers={"cache-control": "no-store"})
        await answer(scope, receive, send)

    async def envs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the environment of every command."""
        answer = JSONResponse(dict(self._sandbox.envs), headers={"cache-control": "no-store"})
        await answer(scope, receive, send)

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        usage = await self._workers.run(self._sandbox.usage)
        measured = {
            "ts": int(usage.at),
            "cpu_count": usage.cpu_count,
            "cpu_used_pct": usage.cpu_used_pct,
            "mem_total": usage.mem_total,
            "mem_used": usage.mem_used,
            "mem_cache": usage.mem_cache,
            "mem_total_mib": usage.mem_total >> 20,
            "mem_used_mib": usage.mem_used >> 20,
            "disk_used": usage.disk_used,
            "disk_total": usage.disk_total,
        }
        answer = JSONResponse(measured, headers={"cache-control": "no-store"})
        await answer(scope, receive, send)
