"""A server whose WebSockets are relayed to a browser, without a sandbox."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from starlette.types import Receive, Scope, Send

from sandbox_http.messages import make_request
from sandbox_http.tunnel import EXTENSION
from sandbox_http.upstream import Upstream
from sandbox_server.browsers.cdp.policy import Direction
from sandbox_server.browsers.cdp.relay import PING_EVERY, Close, Relay
from sandbox_server.http.server import HttpServer
from sandbox_server.supervisor.listeners import listen

LOST = Close(1011, "The browser has ended.")

_DROPPED = (b"origin", b"sec-websocket-extensions", b"host", b"connection", b"upgrade")


@dataclass
class WatchedPolicy:
    """A policy that notes what it is told."""

    keep_alive: bool = True
    downloads: str = "/home/user/downloads"
    records: bool = False
    told: list[str] = field(default_factory=list)
    messages: list[tuple[Direction, bytes]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def on_driver_connected(self) -> None:
        self.told.append("connected")

    def on_driver_left(self) -> None:
        self.told.append("left")
        self.left.set()

    def on_close_requested(self) -> None:
        self.told.append("close requested")

    def record(self, direction: Direction, message: bytes, page_id: str | None) -> None:
        self.messages.append((direction, message))


@dataclass
class Sleep:
    """A browser that sleeps until a message wakes it, if it is told to."""

    is_ready: bool = True
    woken: int = 0
    pending: int = 0
    failure: Exception | None = None

    async def wake(self) -> None:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.woken += 1
        self.is_ready = True

    def note_traffic(self) -> None:
        pass

    def note_pending(self, commands: int) -> None:
        self.pending = commands


@dataclass
class RelayServer:
    """A server in front of a browser's port."""

    browser_port: int
    port: int = 0
    policy: WatchedPolicy = field(default_factory=WatchedPolicy)
    sleep: Sleep = field(default_factory=Sleep)
    ping_every: timedelta = PING_EVERY
    relays: list[Relay] = field(default_factory=list)
    only_watches: bool = False
    browser_path: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, upstream = await asyncio.get_running_loop().create_connection(
            Upstream, "127.0.0.1", self.browser_port
        )
        passed = [header for header in scope["headers"] if header[0] not in _DROPPED]
        headers = [(b"host", b"localhost:9222"), *passed]
        upstream.start(make_request(scope, target=scope["raw_path"], headers=headers))
        answer = await upstream.response()
        relay = Relay(
            self.policy,
            self.sleep,
            page_id=None,
            only_watches=self.only_watches,
            explain_loss=_explain,
            ping_every=self.ping_every,
        )
        self.relays.append(relay)
        self.policy.on_driver_connected()
        try:
            await relay.run(
                scope["extensions"][EXTENSION]["connection"],
                upstream,
                head=answer.switch(answer.forwarded_headers),
            )
        finally:
            self.policy.on_driver_left()


async def _explain() -> Close:
    return LOST


@asynccontextmanager
async def relaying(
    browser_port: int, kind: type[RelayServer] = RelayServer
) -> AsyncIterator[RelayServer]:
    """Serve until the block ends."""
    listeners = listen("127.0.0.1", 0)
    server = kind(browser_port, listeners[0].getsockname()[1])
    started = asyncio.Event()
    http = HttpServer(
        server,
        stop_timeout=timedelta(seconds=5),
        on_started=started.set,
        on_stop=lambda: None,
        is_forwarded=lambda *_: True,
    )
    task = asyncio.create_task(http._serve(listeners))
    await started.wait()
    try:
        yield server
    finally:
        http.should_exit = True
        for relay in server.relays:
            relay.close(LOST)
        await task
