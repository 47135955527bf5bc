import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

from sandbox_engine.commands import CommandTable
from sandbox_engine.container.cgroups import Cgroup
from sandbox_engine.container.search_path import STANDARD_PATH
from sandbox_engine.network.kernel.netns import dial, listen
from sandbox_engine.records.sandbox import (
    InitRecord,
    LinkRecord,
    SandboxRecord,
    State,
)
from sandbox_engine.rootfs.accounts import Account, Accounts
from sandbox_engine.rootfs.root import Root
from sandbox_engine.sandboxes.init_process import wait_exit
from sandbox_engine.system.shared_lock import SharedLock

T = TypeVar("T")

# The event loop holds only weak references to tasks.
_disconnect_callbacks: set[asyncio.Future[None]] = set()


class Connection(Protocol):
    """A client's connection."""

    def cut(self) -> None:
        """Abort it in the middle of a response."""


class SandboxNotRunning(Exception):
    """The sandbox is paused or gone; no command can be started."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"sandbox {sandbox_id} is not running")


@dataclass(frozen=True)
class Usage:
    """Resource usage of a sandbox; in bytes and percent of all its CPUs."""

    at: float
    cpu_count: int
    cpu_used_pct: float
    mem_total: int
    mem_used: int
    mem_cache: int
    disk_total: int
    disk_used: int


class Sandbox:
    """One run of a sandbox's container, as requests and commands use it."""

    def __init__(
        self,
        record: SandboxRecord,
        *,
        directory: Path,
        link: LinkRecord,
        cgroup: Cgroup,
        init: InitRecord,
        root: Root,
        commands: Callable[["Sandbox"], CommandTable],
        disk_room: Callable[[], int],
    ) -> None:
        self.record = record
        self.pause_lock = SharedLock()
        self.cgroup = cgroup
        self.disk_room = disk_room
        self.root = root
        self._directory = directory
        self._link = link
        self._init = init
        self._is_starting_up = False
        self._cpu_mark = (time.monotonic(), cgroup.usage().cpu_seconds)
        self._connections: set[Connection] = set()
        self._companions: dict[type[object], object] = {}
        self._disconnect_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._pause_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._end_callbacks: list[Callable[[], None]] = []
        self.commands = commands(self)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def access_token(self) -> str:
        return self.record.access_token

    @property
    def secrets(self) -> set[str]:
        """Credentials of clients; applications must not see them."""
        tokens = (self.record.access_token, self.record.traffic_token)
        return {token for token in tokens if token is not None}

    @property
    def default_user(self) -> str:
        return self.record.user

    @property
    def default_workdir(self) -> str:
        return self.record.workdir

    @property
    def envs(self) -> Mapping[str, str]:
        """Environment of every command: from the template, the create request and the engine."""
        return self.record.template_envs | self.record.envs | self._own_envs

    @property
    def _own_envs(self) -> dict[str, str]:
        return {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": self.id,
            "E2B_TEMPLATE_ID": self.record.template,
        }

    def environment(self, account: Account) -> Mapping[str, str]:
        """Return the environment for commands of an account."""
        return {**_login(account), **self.envs}

    def environment_of_template(self, account: Account) -> Mapping[str, str]:
        """Return the environment for start commands, which may run before the sandbox is assigned."""
        return {**_login(account), **self.record.template_envs, **self._own_envs}

    @property
    def accounts(self) -> Accounts:
        """The sandbox's users, from its current files."""
        return Accounts.read(self.root)

    @property
    def spool_dir(self) -> Path:
        """Directory for upload buffers, on the engine's own disk."""
        return self._directory

    @contextmanager
    def starting_up(self) -> Iterator[None]:
        """Let the engine's own commands start before the sandbox is ready."""
        self._is_starting_up = True
        try:
            yield
        finally:
            self._is_starting_up = False

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        """Prevent a pause while a command is starting."""
        async with self.pause_lock.shared():
            if self.record.state is not State.RUNNING and not self._is_starting_up:
                raise SandboxNotRunning(self.id)
            yield

    def dial(self, port: int) -> Awaitable[socket.socket]:
        """Connect to a port inside."""
        return dial(self._link.netns, port, address=self._link.address)

    def listen(self, port: int, *, backlog: int) -> Awaitable[socket.socket]:
        """Listen on a port of 127.0.0.1 inside."""
        return listen(self._link.netns, port, backlog=backlog)

    async def wait_ended(self) -> None:
        """Wait until the container's init process, and with it all others, has ended."""
        await wait_exit(self._init)

    def usage(self) -> Usage:
        """Measure the usage; CPU since the previous call."""
        resources = self.record.resources
        used = self.cgroup.usage()
        disk = os.statvfs(self._directory / "disk")
        now = time.monotonic()
        since, before = self._cpu_mark
        self._cpu_mark = (now, used.cpu_seconds)
        share = (used.cpu_seconds - before) / max(now - since, 1e-3) / resources.cpu_count
        return Usage(
            at=time.time(),
            cpu_count=resources.cpu_count,
            cpu_used_pct=round(100 * min(max(share, 0.0), 1.0), 2),
            mem_total=resources.memory_mb << 20,
            mem_used=used.memory_used,
            mem_cache=used.memory_cache,
            disk_total=disk.f_blocks * disk.f_frsize,
            disk_used=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        )

    @contextmanager
    def serving(self, connection: Connection) -> Iterator[None]:
        """Register a connection to cut when the sandbox stops answering."""
        self._connections.add(connection)
        try:
            yield
        finally:
            self._connections.discard(connection)

    def get_or_create(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the object of this type for this run, created on first use."""
        if kind not in self._companions:
            self._companions[kind] = make()
        return cast("T", self._companions[kind])

    def on_disconnect(
        self,
        callback: Callable[[], Awaitable[None]],
        *,
        at_pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Register a callback for when the sandbox stops answering; `at_pause` replaces it if only a pause is the reason."""
        self._disconnect_callbacks.append(callback)
        self._pause_callbacks.append(at_pause or callback)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Register a callback for when this engine is done with this run of the container."""
        self._end_callbacks.append(callback)

    def suspend(self, reason: str) -> None:
        """Disconnect all clients from a frozen container; its commands continue later."""
        self._disconnect(self._pause_callbacks)
        self.commands.detach(reason)

    def close(self, reason: str) -> None:
        """Disconnect all clients from a removed container."""
        self._end()
        self.commands.abandon(reason)
        self.root.close()

    def release(self, reason: str) -> None:
        """Release a running container with its commands to the next engine."""
        self._end()
        self.commands.release(reason)
        self.root.close()

    def _end(self) -> None:
        # An engine that rolls its start back releases sandboxes first, then removes them.
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback()
        self._disconnect(self._disconnect_callbacks)

    def _disconnect(self, callbacks: Iterable[Callable[[], Awaitable[None]]]) -> None:
        # A complete stream would tell SDKs that the sandbox still answers.
        for connection in list(self._connections):
            connection.cut()
        for callback in callbacks:
            task = asyncio.ensure_future(callback())
            _disconnect_callbacks.add(task)
            task.add_done_callback(_disconnect_callbacks.discard)


def _login(account: Account) -> Mapping[str, str]:
    return {
        "PATH": STANDARD_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
    }
