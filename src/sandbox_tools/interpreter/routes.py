import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sandbox_tools.interpreter.context import Context, Execution, TooManyExecutions
from sandbox_tools.interpreter.contexts import (
    Contexts,
    TooManyContexts,
    UnknownContext,
    UnknownDirectory,
)
from sandbox_tools.interpreter.languages import UnknownLanguage
from sandbox_tools.interpreter.process import KernelEnded

_KEEPALIVE_S = 5.0
_HEADERS_S = 0.05
_LARGEST_REQUEST = 16 << 20


class InvalidRequest(Exception):
    """The request's body is not what the endpoint expects."""


STATUS: dict[type[Exception], int] = {
    InvalidRequest: 400,
    UnknownLanguage: 400,
    UnknownDirectory: 400,
    UnknownContext: 404,
    TooManyContexts: 429,
    TooManyExecutions: 429,
    KernelEnded: 500,
    OSError: 500,
}


class ExecutionResponse(Response):
    """Lines of an execution, which is interrupted when its client leaves."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(media_type="application/x-ndjson")
        del self.headers["content-length"]
        self._execution = execution

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(_wait_disconnected(receive))
        leaving.add_done_callback(self._abandon)
        try:
            # Lines of the first moment are sent with the headers.
            chunk = await self._execution.output.next(longest_s=_HEADERS_S, otherwise=b"")
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not chunk.is_last:
                if chunk.lines:
                    await send(_part(chunk.lines, more_body=True))
                chunk = await self._execution.output.next(longest_s=_KEEPALIVE_S)
            await send(_part(chunk.lines, more_body=False))
        finally:
            leaving.cancel()

    def _abandon(self, leaving: asyncio.Task[None]) -> None:
        if not leaving.cancelled():
            self._execution.abandon()


def _part(content: bytes, *, more_body: bool) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more_body}


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def make_app(contexts: Contexts) -> Starlette:
    """Serve contexts by E2B's protocol."""

    async def health(_: Request) -> Response:
        return JSONResponse("OK")

    async def execute(request: Request) -> Response:
        body = await _body(request)
        context = await _context_of(contexts, body)
        variables = _texts(body, "env_vars")
        return ExecutionResponse(context.execute(_text(body, "code") or "", variables))

    async def create(request: Request) -> Response:
        body = await _body(request)
        language = _text(body, "language") or "python"
        context = await contexts.create(language, _text(body, "cwd"))
        return JSONResponse(context.view())

    async def list_contexts(_: Request) -> Response:
        return JSONResponse([context.view() for context in contexts.all()])

    async def restart(request: Request) -> Response:
        await contexts.get(request.path_params["id"]).restart()
        return JSONResponse(None)

    async def interrupt(request: Request) -> Response:
        contexts.get(request.path_params["id"]).interrupt()
        return Response(status_code=204)

    async def delete(request: Request) -> Response:
        await contexts.delete(request.path_params["id"])
        return JSONResponse(None)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/execute", execute, methods=["POST"]),
            Route("/contexts", list_contexts),
            Route("/contexts", create, methods=["POST"]),
            Route("/contexts/{id}", delete, methods=["DELETE"]),
            Route("/contexts/{id}/restart", restart, methods=["POST"]),
            Route("/contexts/{id}/interrupt", interrupt, methods=["POST"]),
        ],
        exception_handlers={kind: _answer(status) for kind, status in STATUS.items()},
    )


def _answer(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), status)

    return answer


async def _context_of(contexts: Contexts, body: dict[str, Any]) -> Context:
    identifier, language = _text(body, "context_id"), _text(body, "language")
    if identifier and language:
        raise InvalidRequest("Only one of context_id or language can be provided")
    return (
        contexts.get(identifier) if identifier else await contexts.get_default(language or "python")
    )


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST_REQUEST:
            raise InvalidRequest(f"The request is larger than {_LARGEST_REQUEST >> 20} MiB.")
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        raise InvalidRequest("The request's body is not JSON.") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The request's body is not a JSON object.")
    return body


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string.")
    return value


def _texts(body: dict[str, Any], name: str) -> dict[str, str]:
    values = body.get(name) or {}
    if not isinstance(values, dict) or not all(isinstance(one, str) for one in values.values()):
        raise InvalidRequest(f"{name} must be an object whose values are strings.")
    return values
