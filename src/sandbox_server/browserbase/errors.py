import json
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.http.problems import MEDIA_TYPE

PREFIX = "/browserbase/"


class BrowserbaseErrors:
    """Renders the errors of paths below `/browserbase` as Browserbase does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            send = _ErrorTranslation(send)
        await self._app(scope, receive, send)


class _ErrorTranslation:
    """Passes answers on, except that problems are translated once they are complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_translated(self._start)

    async def _send_translated(self, start: Message) -> None:
        problem = json.loads(self._body)
        status = translated_status(problem["status"])
        body = json.dumps(translate(problem, status)).encode()
        headers = MutableHeaders(scope=start)
        headers["Content-Type"] = "application/json"
        headers["Content-Length"] = str(len(body))
        await self._send({**start, "status": status})
        await self._send({"type": "http.response.body", "body": body})


def translated_status(status: int) -> int:
    """Browserbase answers 400 to bodies that it cannot use."""
    return HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status


def translate(problem: dict[str, Any], status: int) -> dict[str, Any]:
    """Describe a problem in Browserbase's fields; `code` is ours."""
    parts = [_describe(each) for each in problem.get("errors") or ()]
    message = " ".join(filter(None, [problem.get("detail"), *parts, problem.get("remediation")]))
    return {
        "statusCode": status,
        "error": HTTPStatus(status).phrase,
        "message": message,
        "code": problem["code"],
        "requestId": problem["request_id"],
    }


def _describe(part: dict[str, Any]) -> str:
    where = part.get("pointer") or part.get("parameter") or "body"
    return f"{where}: {part['detail']}."


def _is_problem(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(MEDIA_TYPE.encode())
        for name, value in start["headers"]
    )
