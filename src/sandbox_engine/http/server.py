import asyncio
import contextlib
import errno
import json
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from sandbox_engine.system.errors import CannotRun
from sandbox_http.protocol import HttpProtocol, always

_BACKLOG = 2048
_TIME_TO_FINISH = timedelta(seconds=5)

_CONNECTIONS_PER_SANDBOX = 64

# Longer than clients keep idle connections (the SDK: 300 s), so that the client closes first.
_KEEP_ALIVE = timedelta(seconds=620)

# A vanished peer of a silent stream is detected after two minutes.
_PROBE_AFTER_SECONDS, _PROBE_EVERY_SECONDS, _PROBES = 60, 15, 4


async def serve(
    app: ASGIApp,
    listeners: list[socket.socket],
    *,
    on_started: Callable[[], None],
    on_stopping: Callable[[], Awaitable[None]],
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    protocol: Callable[..., HttpProtocol] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation.

    `on_stopping` ends streams that would not end by themselves.
    """
    config = http_config(app, protocol or EngineHttp, tls_cert=tls_cert, tls_key=tls_key)
    config.load()
    server = _Server(config, on_started=on_started, on_stopping=on_stopping)
    serving = asyncio.create_task(server.serve(sockets=listeners))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


@contextlib.asynccontextmanager
async def serving_sandboxes(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve what sandboxes connect to until the block ends, beside the engine's own port."""
    async with _serving(http_config(app, _SandboxFacingHttp), listener):
        yield


@contextlib.asynccontextmanager
async def serving_tls(app: ASGIApp, context: ssl.SSLContext) -> AsyncIterator[tuple[str, int]]:
    """Serve HTTPS at an address of this machine, to which connections of the engine's port are passed."""
    config = http_config(app, EngineHttp)
    config.load()
    config.ssl = context
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        async with _serving(config, listener):
            yield listener.getsockname()


@contextlib.asynccontextmanager
async def _serving(config: uvicorn.Config, listener: socket.socket) -> AsyncIterator[None]:
    server = _SideServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def http_config(
    app: ASGIApp,
    protocol: Callable[..., HttpProtocol],
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> uvicorn.Config:
    """Configure how connections are served."""
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=protocol,  # type: ignore[arg-type] # a class, or what makes one's object
        ws="none",  # an upgrade is an HTTP request whose connection becomes a tunnel
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # applications in sandboxes send their own
        timeout_keep_alive=int(_KEEP_ALIVE.total_seconds()),
        timeout_graceful_shutdown=int(_TIME_TO_FINISH.total_seconds()),
        backlog=_BACKLOG,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of `host` on this machine; port 0 picks a free one."""
    listeners: list[socket.socket] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in found:
        try:
            listener = socket.create_server((address[0], port), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CannotRun(f"port {port} of {host} is taken; choose another --port") from None
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            continue
        _probe_silent_peers(listener)
        listeners.append(listener)
        port = listener.getsockname()[1]
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of this machine")
    return listeners


def _probe_silent_peers(listener: socket.socket) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # inherited by accepted sockets
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_SECONDS)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


class EngineHttp(HttpProtocol):
    """Turns upgrades into tunnels; errors have the format of E2B's API."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(
            config,
            server_state,
            app_state,
            _loop,
            is_forwarded=always,
            render_refusal=_render_refusal,
        )


class _SandboxFacingHttp(EngineHttp):
    """Limits the connections of each peer, so that no sandbox can take them all."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        others = (getattr(one, "client", None) for one in self.connections)
        if sum(_host(one) == _host(self.client) for one in others) > _CONNECTIONS_PER_SANDBOX:
            transport.abort()


def _host(client: tuple[str, int] | None) -> str:
    return "" if client is None else client[0]


def _render_refusal(status: HTTPStatus, message: str) -> tuple[str, bytes]:
    return "application/json", json.dumps({"code": status, "message": message}).encode()


class _SideServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are for the server of the engine's own port


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_started: Callable[[], None],
        on_stopping: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._on_stopping()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again when it is done, which would end the process before the
        # caller of `serve` can clean up.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)
