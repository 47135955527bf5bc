import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox_client.models import Configuration
from sandbox_server.app import create_app
from sandbox_server.components import Components
from sandbox_server.http.server import ForwardedUpgrades, HttpServer
from sandbox_server.settings import Settings
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.first_start import ADMIN_KEY_FILE
from sandbox_server.supervisor.guard_channel import GuardChannel
from sandbox_server.supervisor.listeners import url_of
from sandbox_server.supervisor.signals import Interrupted
from sandbox_server.templates.bundled import NO_BUNDLED_TEMPLATES, BundledTemplates
from sandbox_server.wiring import open_server

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServeOptions:
    """Everything that serving needs; no file is read afterwards."""

    settings: Settings
    listeners: list[socket.socket]
    new_admin_key: str | None = field(repr=False)
    pause_at_end: bool
    bundled: BundledTemplates = NO_BUNDLED_TEMPLATES
    configurations: Mapping[str, Configuration] = field(default_factory=dict)


async def serve_api(options: ServeOptions, link: GuardChannel | None = None) -> bool:
    """Serve until stopped; return whether all sandboxes were paused, if required."""
    settings = options.settings
    with _interruptible():
        opened = open_server(
            settings, bundled=options.bundled, configurations=options.configurations
        )
        async with opened as server:
            await HttpServer(
                create_app(server.components),
                stop_timeout=settings.stop_timeout,
                on_started=lambda: _on_started(options, link),
                on_stop=lambda: end_streams(server.components),
                is_forwarded=ForwardedUpgrades(server.components.public_address),
            ).serve(sockets=options.listeners)
            return options.pause_at_end and await server.shutdown_pauser.pause_all(
                within=settings.stop_timeout
            )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Stop at SIGTERM or SIGHUP during start-up; uvicorn installs its own handlers later."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def interrupt(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise
        raise Interrupted(received[0]) from None


def _on_started(options: ServeOptions, link: GuardChannel | None) -> None:
    if link is not None and not link.confirm_start():
        raise CannotServe("The guard of the engine ended while the server started.")
    _print_welcome(options)


def end_streams(components: Components) -> None:
    """End streams and long requests at a stop; clients reconnect."""
    components.session_drivers.stop()
    components.streams.end()
    components.commands.end_waits()
    components.port_proxy.end_streams()
    components.tool_servers.end_waits()


def _print_welcome(options: ServeOptions) -> None:
    url = url_of(options.settings.host, options.listeners)
    file = options.settings.state_dir / ADMIN_KEY_FILE
    lines = [f"The server is listening on {url}"]
    if options.new_admin_key is not None:
        lines.append(f"Its admin key, kept in {file}: {options.new_admin_key}")
    headers = f"""-H "X-API-Key: $(cat {file})" -H 'Content-Type: application/json'"""
    lines += [
        "Paste this into another terminal to create a sandbox:",
        f"  curl {headers} -d '{{}}' {url}/v1/sandboxes",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
