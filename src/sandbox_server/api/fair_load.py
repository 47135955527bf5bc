import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.api.streamed import is_streamed
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import TooManyAtOnce

LARGE = 256 * 1024
LARGE_AT_ONCE = 4

_LARGE_ANSWERS = frozenset({"/sandboxes/read-file"})


class FairLoad:
    """Leaves of the server's connections and memory enough to all tenants, whatever one of them sends.

    Beyond so many requests at once a tenant is refused; beyond so many large ones it waits for its own, and no more
    of them is read. A body of 16 MiB takes 55 while it is worked on; what is streamed is never there as a whole.
    """

    def __init__(self, app: ASGIApp, *, at_once: int) -> None:
        self._app = app
        self._at_once = at_once
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self._large: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get("state", {}).get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        with self._one_more(caller.tenant_id):
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

    @contextmanager
    def _one_more(self, tenant_id: str) -> Iterator[None]:
        if self._under_way[tenant_id] >= self._at_once:
            raise TooManyAtOnce(self._at_once)
        self._under_way[tenant_id] += 1
        try:
            yield
        finally:
            self._under_way[tenant_id] -= 1
            if not self._under_way[tenant_id]:
                del self._under_way[tenant_id]


def _begins_stream(message: Message) -> bool:
    return message["type"] == "http.response.start" and Headers(raw=message["headers"]).get(
        "content-type", ""
    ).startswith("text/event-stream")
