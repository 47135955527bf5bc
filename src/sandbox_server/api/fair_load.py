import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.api.sse import accepts_events
from sandbox_server.api.streamed import is_streamed
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import LimitReached, TooManyAtOnce, TooManyStreams

LARGE = 256 * 1024
LARGE_AT_ONCE = 4

_LARGE_ANSWERS = frozenset({"/sandboxes/read-file"})


class FairLoad:
    """Leaves of the server's connections and memory enough to all tenants, whatever one of them sends.

    Beyond so many requests at once a tenant is refused; beyond so many large ones it waits for its own, and no more
    of them is read. A body of 16 MiB takes 55 while it is worked on; what is streamed is never there as a whole.
    Streams of events and WebSockets, which last, are counted apart.
    """

    def __init__(self, app: ASGIApp, *, at_once: int, streams: int) -> None:
        self._app = app
        self._requests = _Places(at_once, TooManyAtOnce)
        self._streams = _Places(streams, TooManyStreams)
        self._large: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get("state", {}).get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        places = self._streams if _lasts(scope) else self._requests
        with places.one_more(caller.tenant_id):
            if is_streamed(scope):
                await self._app(scope, receive, send)
            else:
                await self._serve(caller.tenant_id, scope, receive, send)

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

            is_large = scope["path"] in _LARGE_ANSWERS
            if is_large:
                await held.enter_async_context(large)
            await self._app(scope, receive_in_turn, send_on)


class _Places:
    """Counts what each tenant has under way, and refuses more than it may have."""

    def __init__(self, most: int, refusal: Callable[[int], LimitReached]) -> None:
        self._most = most
        self._refusal = refusal
        self._taken: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def one_more(self, tenant_id: str) -> Iterator[None]:
        if self._taken[tenant_id] >= self._most:
            raise self._refusal(self._most)
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]


def _lasts(scope: Scope) -> bool:
    return scope["type"] == "websocket" or accepts_events(Headers(scope=scope))


def _begins_stream(message: Message) -> bool:
    return message["type"] == "http.response.start" and Headers(raw=message["headers"]).get(
        "content-type", ""
    ).startswith("text/event-stream")
