"""Answers of the browser to plain requests, which name the browser's own address."""

import asyncio
import re
from collections.abc import Callable

from starlette.types import Message, Scope

from sandbox_http.tunnel import EXTENSION
from sandbox_server.domain.errors import PortBroken
from sandbox_server.domain.service_ports import CDP_PORT
from sandbox_server.proxy.client import Client

_LARGEST_DESCRIPTION = 8 * 1024 * 1024


class CollectedAnswer:
    """Collects a response, so that its body can be changed."""

    def __init__(self, client: Client) -> None:
        self.body = b""
        self.client = Client(client.scope, client.receive, self._collect)
        self._send = client.send
        self._start: Message = {}

    async def _collect(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self.body += message.get("body", b"")
        if len(self.body) > _LARGEST_DESCRIPTION:
            raise PortBroken(CDP_PORT, "sent a description that is too large")

    async def send(self, change: Callable[[bytes], bytes]) -> None:
        body = change(self.body)
        kept = [each for each in self._start["headers"] if each[0].lower() != b"content-length"]
        headers = [*kept, (b"content-length", b"%d" % len(body))]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class _NoConnection:
    """The connection of a request that this server sends itself."""

    def is_closing(self) -> bool:
        return False

    def cut(self) -> None:
        pass


def internal_client(path: str) -> Client:
    sent = asyncio.Event()

    async def receive() -> Message:
        if sent.is_set():
            await asyncio.Event().wait()  # never disconnects
        sent.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "client": None,
        "extensions": {EXTENSION: {"connection": _NoConnection()}},
    }
    return Client(scope, receive, send)


def with_public_urls(body: bytes, base: str, *, local: str) -> bytes:
    """Replace the browser's own address in `/json/version` and `/json/list`, and the front end that Google serves."""
    scheme, _, rest = base.partition("://")
    websocket = f"{'wss' if scheme == 'https' else 'ws'}://{rest}"
    text = body.decode(errors="replace").replace(f"ws://{local}", websocket)
    front_end = f"{base}/devtools/inspector.html?{'wss' if scheme == 'https' else 'ws'}={rest}"
    return re.sub(
        rf"https://[^\"?]*/inspector\.html\?ws={re.escape(local)}", lambda _: front_end, text
    ).encode()
