import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import LimitReached
from sandbox_server.http.sse import accepts_events
from sandbox_server.http.streaming_routes import is_streamed, is_transfer


class ConcurrencyLimit:
    """Limits how many requests or streams each tenant has in progress at one server."""

    def __init__(self, limit: int, refusal: Callable[[int], LimitReached]) -> None:
        self._limit = limit
        self._refusal = refusal
        self._active: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def acquire(self, tenant_id: str) -> Iterator[None]:
        """Count one request for the duration of the block, or raise."""
        if self._active[tenant_id] >= self._limit:
            raise self._refusal(self._limit)
        self._active[tenant_id] += 1
        try:
            yield
        finally:
            self._active[tenant_id] -= 1
            if not self._active[tenant_id]:
                del self._active[tenant_id]


LARGE = 256 * 1024
CONCURRENT_LARGE_REQUESTS = 4

CONCURRENT_TRANSFERS = 32

_LARGE_RESPONSES = re.compile(r"/sandboxes/read-file|/v1/sandboxes/[^/]+/files")


class TenantLimits:
    """Limits each tenant's share of the server's connections and memory.

    A tenant's concurrent requests are limited by rejection. Its large requests and its file transfers beyond a limit wait
    for each other, and their bodies are not read meanwhile: a body of 16 MiB takes 55 MiB while it is processed.
    Transfers are streamed, but each holds a connection to its sandbox. SSE streams and WebSockets have a limit of their own.
    """

    def __init__(
        self, app: ASGIApp, *, requests: ConcurrencyLimit, streams: ConcurrencyLimit
    ) -> None:
        self._app = app
        self._requests = requests
        self._streams = streams
        self._large: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._transfers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get("state", {}).get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        limit = self._streams if is_long_lived(scope) else self._requests
        with limit.acquire(caller.tenant_id):
            if is_transfer(scope):
                await self._transfer(caller.tenant_id, scope, receive, send)
            elif is_streamed(scope):
                await self._app(scope, receive, send)
            else:
                await self._serve(caller.tenant_id, scope, receive, send)

    async def _transfer(self, tenant_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._transfers.setdefault(tenant_id, asyncio.Semaphore(CONCURRENT_TRANSFERS))
        async with limit:
            await self._app(scope, receive, send)

    async def _serve(self, tenant_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        large = self._large.setdefault(tenant_id, asyncio.Semaphore(CONCURRENT_LARGE_REQUESTS))
        received = 0
        async with AsyncExitStack() as slot:

            async def receive_limited() -> Message:
                nonlocal received
                message = await receive()
                before, received = received, received + len(message.get("body", b""))
                if before <= LARGE < received and not is_large:
                    await slot.enter_async_context(large)
                return message

            async def send_releasing(message: Message) -> None:
                if _starts_stream(
                    message
                ):  # lasts for hours, and the request body is already processed
                    await slot.aclose()
                await send(message)

            is_large = _LARGE_RESPONSES.fullmatch(scope["path"]) is not None
            if is_large:
                await slot.enter_async_context(large)
            await self._app(scope, receive_limited, send_releasing)


def is_long_lived(scope: Scope) -> bool:
    """Return whether a request is a stream or WebSocket, which lasts as long as the client wishes."""
    headers = Headers(scope=scope)
    return scope["type"] == "websocket" or "upgrade" in headers or accepts_events(headers)


def _starts_stream(message: Message) -> bool:
    return message["type"] == "http.response.start" and Headers(raw=message["headers"]).get(
        "content-type", ""
    ).startswith("text/event-stream")
