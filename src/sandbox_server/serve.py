"""Starts all that a server is made of, and takes it apart.

As root                                       Otherwise
  sandbox-server   root: starts, and guards     sandbox-server   HTTP
    ├─ engine      root, outlives us              └─ sudo guard-engine
    └─ server      HTTP, as `sandbox-server`           └─ engine

PostgreSQL is nobody's child. What ends without a word has crashed: the engine goes on then, and the next start finds it.
"""

import asyncio
import gc
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import uvloop
from pydantic import SecretStr

from sandbox_server.db.account import Account
from sandbox_server.db.embedded import ACCOUNT, EmbeddedPostgres
from sandbox_server.processes.engine import EngineAddress, LocalEngine
from sandbox_server.processes.first_start import get_ready
from sandbox_server.processes.guard import EngineGuard, engine_of
from sandbox_server.processes.link import GuardLink, make_link
from sandbox_server.processes.listening import listen
from sandbox_server.processes.privileges import fork_as
from sandbox_server.processes.providers import (
    configured_backends,
    engine_directory,
    needs_engine,
    with_agent_template,
)
from sandbox_server.processes.raising import raised_guard
from sandbox_server.processes.serving import Work, serve_api
from sandbox_server.processes.state_directory import sole_server
from sandbox_server.settings import Settings, forget_variables
from sandbox_server.templates.shipped import provide_shipped


def serve(settings: Settings) -> int:
    """Serve until told to stop; tells how it ended."""
    forget_variables()
    with sole_server(settings.state_dir):
        listeners = listen(settings.host, settings.port)
        if os.geteuid() == 0:
            return _serve_as_account(settings, listeners)
        return _serve_as_user(settings, listeners)


def _serve_as_user(settings: Settings, listeners: list[socket.socket]) -> int:
    if not needs_engine(settings):
        with _database(settings) as url:
            return _serve(_work(settings, listeners, url=url))
    with (
        raised_guard(engine_directory(settings)) as (address, link),
        _database(settings) as url,
    ):
        return _serve(_work(settings, listeners, url=url, engine=address), link)


def _serve_as_account(settings: Settings, listeners: list[socket.socket]) -> int:
    account = Account.ours_or(ACCOUNT)
    with _engine(settings) as engine, _database(settings) as url:
        address = None if engine is None else engine.address
        work = _work(settings, listeners, url=url, engine=address)
        guards, servers = make_link()
        server = fork_as(account, partial(_serve, work, servers), close=guards)
        servers.close()
        for listener in listeners:
            listener.close()
        with _passing_on_signals(server):
            if engine is not None:
                EngineGuard(engine, guards).run()
            _, status = os.waitpid(server, 0)
    ended = os.waitstatus_to_exitcode(status)
    return ended if ended >= 0 else 128 - ended


def _serve(work: Work, link: GuardLink | None = None) -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    _collect_garbage_seldom()
    at_rest = uvloop.run(serve_api(work))
    if at_rest and link is not None:
        link.stop_engine()
    return 0


def _collect_garbage_seldom() -> None:
    """Keep the collector from stopping everything for long, again and again, where there are many connections.

    With a thousand followers it took a fifth of a second each time, and came so often that p99 of their events was
    336 ms instead of 90. What is loaded by now is never garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _work(
    settings: Settings,
    listeners: list[socket.socket],
    *,
    url: str,
    engine: EngineAddress | None = None,
) -> Work:
    found = settings.model_copy(
        update={
            "port": listeners[0].getsockname()[1],
            "database_url": SecretStr(url),
            "backends": configured_backends(settings, engine),
            "agent_template": with_agent_template(settings),
        }
    )
    complete, admin_key = asyncio.run(get_ready(found, engine=engine))
    return Work(
        complete,
        listeners,
        new_admin_key=admin_key,
        # Nobody else can go on with them: the engine is ours, and the database is.
        rest_at_end=engine is not None and settings.database_url is None,
        shipped=provide_shipped(settings.template_dir),
    )


@contextmanager
def _engine(settings: Settings) -> Iterator[LocalEngine | None]:
    if not needs_engine(settings):
        yield None
        return
    with engine_of(engine_directory(settings)) as engine:
        engine.wait_until_ready()
        yield engine


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    postgres = EmbeddedPostgres(settings.state_dir / "postgres")
    url = postgres.start()
    try:
        yield url
    finally:
        postgres.stop()


@contextmanager
def _passing_on_signals(process: int) -> Iterator[None]:
    """Leave it to the process how to end; it is in a group of its own, so a Ctrl-C reaches only us."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(process, number)

    heeded = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
