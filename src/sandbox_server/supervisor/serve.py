"""Starts and stops the processes of a server.

As root                                       Otherwise
  sandbox-server   root: starts, and guards     sandbox-server   HTTP
    ├─ engine      root, outlives us              └─ sudo guard-engine
    └─ server      HTTP, as `sandbox-server`           └─ engine

PostgreSQL is nobody's child. If the server ends without a message, it has crashed: the engine keeps running, and the next start finds it.

Slow steps come last: settings, port, account and database are checked before the engine is started. A start that fails or is
interrupted stops only what it has started.
"""

import asyncio
import gc
import os
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import uvloop
from pydantic import SecretStr

from sandbox_client.models import Configuration
from sandbox_server.access.configuration.file import read_configurations, require_known_backends
from sandbox_server.db.account import Account
from sandbox_server.db.embedded import ACCOUNT, EmbeddedPostgres
from sandbox_server.settings import Settings, forget_variables
from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.engine_note import EngineAddress
from sandbox_server.supervisor.first_start import get_ready, prepare_database
from sandbox_server.supervisor.guard import EngineGuard, engine_of
from sandbox_server.supervisor.guard_channel import GuardChannel, make_guard_channel
from sandbox_server.supervisor.listeners import listen, url_of
from sandbox_server.supervisor.privileges import fork_as, try_programs
from sandbox_server.supervisor.providers import (
    configured_backends,
    engine_directory,
    needs_engine,
    with_agent_template,
)
from sandbox_server.supervisor.server_main import ServeOptions, serve_api
from sandbox_server.supervisor.signals import HANDLED_SIGNALS, signals_blocked, unwinding_on_signals
from sandbox_server.supervisor.state_directory import sole_server
from sandbox_server.supervisor.sudo_guard import guard_with_sudo, require_sudo
from sandbox_server.templates.bundled import BundledTemplates, load_bundled_templates


@dataclass(frozen=True)
class _Start:
    """Settings, sockets and templates: checked and opened before any process is started."""

    settings: Settings
    listeners: list[socket.socket]
    bundled: BundledTemplates
    configurations: Mapping[str, Configuration]

    @property
    def url(self) -> str:
        return url_of(self.settings.host, self.listeners)


def serve(settings: Settings) -> int:
    """Serve until stopped; return the exit code."""
    forget_variables()
    with unwinding_on_signals(), sole_server(settings.state_dir):
        start = _Start(
            settings,
            listen(settings.host, settings.port),
            load_bundled_templates(settings.template_dir),
            read_configurations(settings.configuration),
        )
        if os.geteuid() == 0:
            return _serve_as_account(start)
        return _serve_as_user(start)


def _serve_as_user(start: _Start) -> int:
    settings = start.settings
    if not needs_engine(settings):
        with _database(settings) as prepared:
            return _serve(_work(start, prepared))
    require_sudo()
    with (
        _database(settings) as prepared,
        guard_with_sudo(engine_directory(settings), server_url=start.url) as (address, link),
    ):
        return _serve(_work(start, prepared, engine=address), link)


def _serve_as_account(start: _Start) -> int:
    account = Account.ours_or(ACCOUNT)
    if (refused := try_programs(account)) != 0:
        return refused
    settings = start.settings
    _provide_mirrors(settings.mirrors, account)
    with _database(settings) as prepared, _engine(start) as engine:
        address = None if engine is None else engine.address
        work = _work(start, prepared, engine=address)
        guards, servers = make_guard_channel()
        with signals_blocked():
            server = fork_as(
                account,
                partial(_serve, work, None if engine is None else servers),
                close=partial(_close_parents, guards, engine),
            )
            stack = ExitStack()
            stack.enter_context(_passing_on_signals(server))
        with stack:
            servers.close()
            for listener in start.listeners:
                listener.close()
            if engine is not None:
                EngineGuard(engine, guards).run()
            _, status = os.waitpid(server, 0)
    ended = os.waitstatus_to_exitcode(status)
    return ended if ended >= 0 else 128 - ended


def _provide_mirrors(directory: Path, account: Account) -> None:
    """Create the directory of mirrors, since the account may not write to the state directory."""
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if directory.lstat().st_uid == os.geteuid():  # created now, or by a start that died here
        account.own(directory)


def _close_parents(guards: GuardChannel, engine: LocalEngine | None) -> None:
    """Close the parent's descriptors in the child: otherwise the parent's end would go unnoticed."""
    guards.close()
    if engine is not None:
        engine.close_confirmation()


def _serve(work: ServeOptions, link: GuardChannel | None = None) -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every connection is an open file
    _collect_garbage_seldom()
    at_rest = uvloop.run(serve_api(work, link))
    if at_rest and link is not None:
        link.stop_engine()
    return 0


def _collect_garbage_seldom() -> None:
    """Avoid frequent long garbage collections with many connections.

    With a thousand followers each took 0.2 s, and p99 of their events was 336 ms instead of 90 ms. Objects that exist by now is never
    garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _work(
    start: _Start, prepared: Settings, *, engine: EngineAddress | None = None
) -> ServeOptions:
    found = prepared.model_copy(
        update={
            "port": start.listeners[0].getsockname()[1],
            "backends": configured_backends(prepared, engine),
            "agent_template": with_agent_template(prepared),
        }
    )
    return ServeOptions(
        found,
        start.listeners,
        new_admin_key=asyncio.run(get_ready(found, engine=engine)),
        # No other server can take over: engine and database are ours.
        pause_at_end=engine is not None and start.settings.database_url is None,
        bundled=start.bundled,
        configurations=require_known_backends(
            start.configurations, [backend.name for backend in found.backends]
        ),
    )


@contextmanager
def _engine(start: _Start) -> Iterator[LocalEngine | None]:
    if not needs_engine(start.settings):
        yield None
        return
    with engine_of(engine_directory(start.settings)) as engine:
        engine.name_server(start.url)
        engine.wait_until_ready()
        yield engine


@contextmanager
def _database(settings: Settings) -> Iterator[Settings]:
    """Run and migrate the database; yield the settings with its URL and encryption keys."""
    if settings.database_url is not None:
        yield asyncio.run(prepare_database(settings))
        return
    postgres = EmbeddedPostgres(settings.state_dir / "postgres")
    try:
        url = SecretStr(postgres.start())
        own = settings.model_copy(update={"database_url": url})
        yield asyncio.run(prepare_database(own))
    finally:
        postgres.stop()


@contextmanager
def _passing_on_signals(process: int) -> Iterator[None]:
    """Forward signals to the process; it has its own process group, so Ctrl-C reaches only us."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(process, number)

    before = {number: signal.signal(number, pass_on) for number in HANDLED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
