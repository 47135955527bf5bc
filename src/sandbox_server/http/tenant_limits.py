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
from sandbox_server.http.streamed import is_streamed, is_transfer


class ConcurrencyLimit:
    """Counts what each tenant has under way at one server, and refuses more than it may have."""

    def __init__(self, most: int, refusal: Callable[[int], LimitReached]) -> None:
        self._most = most
        self._refusal = refusal
        self._taken: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def one_more(self, tenant_id: str) -> Iterator[None]:
        """Count one while the block lasts."""
        if self._taken[tenant_id] >= self._most:
            raise self._refusal(self._most)
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]


LARGE = 256 * 1024
LARGE_AT_ONCE = 4

TRANSFERS_AT_ONCE = 32

_LARGE_ANSWERS = re.compile(r"/sandboxes/read-file|/v1/sandboxes/[^/]+/files")


class TenantLimits:
    """Leaves of the server's connections and memory enough to all tenants, whatever one of them sends.

    Beyond so many requests at once a tenant is refused; beyond so many large ones it waits for its own, and no more
    of them is read. A body of 16 MiB takes 55 while it is worked on; what is streamed is never there as a whole,
    but of transfers, each with a connection to its sandbox, no more than so many are under way either. Streams of events
    and WebSockets, which last, are counted apart.
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
        shares = self._streams if lasts(scope) else self._requests
        with shares.one_more(caller.tenant_id):
            if is_transfer(scope):
                await self._transfer(caller.tenant_id, scope, receive, send)
            elif is_streamed(scope):
                await self._app(scope, receive, send)
            else:
                await self._serve(caller.tenant_id, scope, receive, send)

    async def _transfer(self, tenant_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        turns = self._transfers.setdefault(tenant_id, asyncio.Semaphore(TRANSFERS_AT_ONCE))
        async with turns:
            await self._app(scope, receive, send)

    async def _serve(self, tenant_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        large = self._large.setdefault(tenant_id, asyncio.Semaphore(LARGE_AT_ONCE))
        received = 0
        async with AsyncExitStack() as held:

            async def receive_in_turn() -> Message:
                nonlocal received
                message = await receive()
                before, received = received, received + len(message.get("body", b""))
                if before <= LARGE < received and not is_large:
                    await held.enter_async_context(large)
                return message

            async def send_on(message: Message) -> None:
                if _begins_stream(message):  # it may last for hours, and what was asked is taken in
                    await held.aclose()
                await send(message)

            is_large = _LARGE_ANSWERS.fullmatch(scope["path"]) is not None
            if is_large:
                await held.enter_async_context(large)
            await self._app(scope, receive_in_turn, send_on)


def lasts(scope: Scope) -> bool:
    """Tell whether a request may be under way for as long as its caller likes."""
    headers = Headers(scope=scope)
    return scope["type"] == "websocket" or "upgrade" in headers or accepts_events(headers)


def _begins_stream(message: Message) -> bool:
    return message["type"] == "http.response.start" and Headers(raw=message["headers"]).get(
        "content-type", ""
    ).startswith("text/event-stream")
