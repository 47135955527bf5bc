from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_connect import FilesystemASGIApplication
from e2b.envd.process.process_connect import ProcessASGIApplication
from starlette.responses import Response

from sandbox_engine.envd.filesystem.service import FilesystemService
from sandbox_engine.envd.processes.service import ProcessService
from sandbox_engine.envd.protocol.codecs import CODECS, COMPRESSIONS
from sandbox_engine.envd.rpc_errors import FaultInterceptor

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sandbox_engine.sandboxes.sandbox import Sandbox
    from sandbox_engine.system.file_threads import FileThreads

_MESSAGE_LIMIT = 64 << 20


class RpcRoutes:
    """E2B's two Connect services for one sandbox, routed by path prefix."""

    def __init__(self, sandbox: Sandbox, workers: FileThreads) -> None:
        process = ProcessASGIApplication(
            ProcessService(sandbox),
            interceptors=(FaultInterceptor(),),
            read_max_bytes=_MESSAGE_LIMIT,
            compressions=COMPRESSIONS,
            codecs=CODECS,
        )
        filesystem = FilesystemASGIApplication(
            FilesystemService(sandbox, workers),
            interceptors=(FaultInterceptor(),),
            read_max_bytes=_MESSAGE_LIMIT,
            compressions=COMPRESSIONS,
            codecs=CODECS,
        )
        # connectrpc uses its own name for the ASGI application type.
        self._services = {app.path: cast("ASGIApp", app) for app in (process, filesystem)}

    def find(self, path: str) -> ASGIApp | None:
        """Find the application for this path."""
        service, _, _ = path.rpartition("/")
        app = self._services.get(service)
        return None if app is None else partial(_call, app)


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    if (refusal := _refusal(scope)) is not None:
        await refusal(scope, receive, send)
    else:
        await _until_client_leaves(app, scope, receive, send)


def _refusal(scope: Scope) -> Response | None:
    """Reject requests that the application must not see or would fail on."""
    if scope["method"] != "POST":
        return Response(status_code=405, headers={"allow": "POST"})
    try:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    except UnicodeDecodeError:
        return Response("a header is not UTF-8\n", 400, media_type="text/plain")
    if headers.get("content-type", "").startswith("application/grpc"):
        return Response(status_code=415, headers={"accept-post": "application/proto"})
    return None


async def _until_client_leaves(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the application, and cancel it when the client disconnects.

    Otherwise it would notice only at its next message, and keep a command's output or watches until
    then.
    """
    caller = asyncio.current_task()
    assert caller is not None
    is_whole = has_left = False

    async def receive_watching() -> Message:
        nonlocal is_whole, has_left
        message = await receive()
        if message["type"] == "http.disconnect" and is_whole and not has_left:
            has_left = True
            caller.cancel()
        is_whole = is_whole or not message.get("more_body", False)
        return message

    try:
        await app(scope, receive_watching, send)
    except (asyncio.CancelledError, ConnectError):
        if not has_left:
            raise
    finally:
        if has_left:
            caller.uncancel()
