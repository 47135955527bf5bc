import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import cast

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from sandbox_http.protocol import HttpProtocol, IsForwarded, never
from sandbox_server.domain.ids import new_id
from sandbox_server.http.faults import HEAD_TOO_LARGE, MALFORMED
from sandbox_server.http.problems import MEDIA_TYPE, render_fault
from sandbox_server.http.websocket_protocol import LARGEST_MESSAGE, BoundedWebSocket
from sandbox_server.proxy.targets import PublicAddress

log = logging.getLogger(__name__)

_PATHS = re.compile(
    rb"(?:/v1/sandboxes/[a-z0-9]{20}/(?:ports/[0-9]+/proxy|mcp|agent/socket)|/browser|/browserbase"
    rb"|/desktop/[a-z0-9]{20}/vnc)(?:[/?].*)?",
    re.DOTALL,
)


class ForwardedUpgrades:
    """Decides, before a connection is upgraded, whether the upgrade is forwarded to a server in a sandbox."""

    def __init__(self, public_address: PublicAddress) -> None:
        self._public_address = public_address

    def __call__(self, headers: list[tuple[bytes, bytes]], target: bytes) -> bool:
        hosts = Headers(raw=headers).getlist("host")
        is_sandbox = len(hosts) == 1 and self._public_address.is_sandbox_host(hosts[0])
        return is_sandbox or _PATHS.fullmatch(target) is not None


_MAX_CONNECTIONS = 10_000
# Longer than the idle connections of most clients and proxies, so that they close first.
_KEEP_ALIVE = timedelta(seconds=75)


def render_refusal(status: HTTPStatus, message: str) -> tuple[str, bytes]:
    """Render as problem+json the rejection of input that is not a valid HTTP request."""
    is_size = status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    fault = HEAD_TOO_LARGE if is_size else MALFORMED
    answer = render_fault(fault, request_id=new_id(), detail=message)
    return MEDIA_TYPE, bytes(answer.body)


class HttpServer(uvicorn.Server):
    """Serves until SIGTERM, SIGINT or SIGHUP; a second signal ends it at once."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        stop_timeout: timedelta,
        on_started: Callable[[], None],
        on_stop: Callable[[], None],
        is_forwarded: IsForwarded = never,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=cast(
                    "type[asyncio.Protocol]",
                    partial(HttpProtocol, is_forwarded=is_forwarded, render_refusal=render_refusal),
                ),
                ws=BoundedWebSocket,
                ws_max_size=LARGEST_MESSAGE,
                log_config=None,
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=int(_KEEP_ALIVE.total_seconds()),
                timeout_graceful_shutdown=int(stop_timeout.total_seconds()),
                limit_concurrency=_MAX_CONNECTIONS,
            )
        )
        self._on_started = on_started
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again after shutdown, which would end the process before the jobs are released.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(each, self._handle_signal)
        yield  # handlers stay until the process ends: a second signal counts during shutdown too

    def _handle_signal(self) -> None:
        if self.should_exit:
            log.warning("stopped immediately; unfinished work is recovered at the next start")
            os._exit(1)
        self.should_exit = True
        self._on_stop()  # ends streams, which would otherwise last until the stop timeout
