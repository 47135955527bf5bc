import asyncio
import builtins
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from sandbox_engine.commands.command import Command
from sandbox_engine.commands.followers import SandboxGone
from sandbox_engine.commands.request import CommandFiles, CommandRecord, CommandRequest
from sandbox_engine.keeper.client import Keeper, LaunchFailed
from sandbox_engine.keeper.held_command import HeldCommand
from sandbox_engine.records.journal import Journal

# E2B answers a Connect to a command that has just ended with its end event.
_REMEMBER_SECONDS = 30.0


class CommandNotFound(Exception):
    """The sandbox has no such command."""


class ExecArgv(Protocol):
    """Builds the command line that starts a process in a container and returns."""

    def __call__(
        self,
        container_id: str,
        *,
        process: Path,
        pid_file: Path,
        console_socket: Path | None = None,
    ) -> list[str]: ...


class CommandTable:
    """The commands of one run of a sandbox; `directory` is the sandbox's directory."""

    def __init__(
        self,
        keeper: Keeper,
        container_id: str,
        *,
        exec_argv: ExecArgv,
        process_spec: Callable[[CommandRequest], Mapping[str, Any]],
        starting: Callable[[], AbstractAsyncContextManager[None]],
        oom_kills: Callable[[], int],
        directory: Path,
        uid_base: int,
    ) -> None:
        self._keeper = keeper
        self._container_id = container_id
        self._exec_argv = exec_argv
        self._process_spec = process_spec
        self._starting = starting
        self._oom_kills = oom_kills
        self._spool_dir = directory
        self._uid_base = uid_base
        self._journal = Journal(directory)
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, Command] = {}
        self._remembered: dict[int, tuple[float, Command]] = {}
        self._gone: SandboxGone | None = None
        self._starts: set[asyncio.Task[Command]] = set()

    async def start(self, request: CommandRequest, *, deadline: datetime | None = None) -> Command:
        """Start a command; at its deadline it is killed, even without followers."""
        # A cancelled request must not leave an unknown command behind.
        start = asyncio.create_task(self._start(request, deadline))
        self._starts.add(start)
        start.add_done_callback(self._finish_start)
        return await asyncio.shield(start)

    def adopt(self) -> None:
        """Adopt commands that an earlier engine started in this container."""
        for held in self._keeper.adopted(self._container_id):
            record = self._files(held.key).read()
            if record is None:
                self._keeper.forget(held)
            else:
                self._add(held, record)

    def list(self) -> builtins.list[Command]:
        """List running commands."""
        return list(self._running.values())

    def by_pid(self, pid: int) -> Command:
        """Return the running command with this pid inside the sandbox."""
        command = self._running.get(pid)
        if command is None:
            raise CommandNotFound(f"process with pid {pid} not found")
        return command

    def by_tag(self, tag: str) -> Command:
        """Return the running command with this tag, the newest if there are several."""
        return _newest(self.list(), tag)

    def recall_by_pid(self, pid: int) -> Command:
        """Return the command with this pid; includes recently ended commands."""
        self._purge()
        if pid in self._remembered and pid not in self._running:
            return self._remembered[pid][1]
        return self.by_pid(pid)

    def recall_by_tag(self, tag: str) -> Command:
        """Return the command with this tag; includes recently ended commands."""
        self._purge()
        ended = [command for _, command in self._remembered.values()]
        return _newest([*ended, *self._running.values()], tag)

    def detach(self, reason: str) -> None:
        """Disconnect all followers; the commands keep running."""
        for command in self._running.values():
            command.detach(SandboxGone(reason))

    def abandon(self, reason: str) -> None:
        """Forget all commands: their container is gone."""
        for command in self._release_all(reason):
            self._discard(command)

    def release(self, reason: str) -> None:
        """Release all commands for the next engine to adopt."""
        self._release_all(reason)

    def _release_all(self, reason: str) -> builtins.list[Command]:
        self._gone = SandboxGone(reason)
        commands = self.list()
        self._running.clear()
        self._remembered.clear()
        for command in commands:
            command.release(self._gone)
        return commands

    async def _start(self, request: CommandRequest, deadline: datetime | None) -> Command:
        files = self._files(f"{self._container_id}-{secrets.token_hex(8)}")
        record = CommandRecord(
            request, started_at=datetime.now(UTC), deadline=deadline, oom_kills=self._oom_kills()
        )
        async with self._starting():
            try:
                files.write(record, self._process_spec(request))
                held = await self._launch(files, request)
            except BaseException:
                files.remove()
                raise
            files.process.unlink()
        if self._gone is not None:
            self._keeper.forget(held)
            files.remove()
            raise self._gone
        command = self._add(held, record)
        self._note("command started", command)
        return command

    def _finish_start(self, start: asyncio.Task[Command]) -> None:
        self._starts.discard(start)
        if not start.cancelled():
            start.exception()  # its caller may have left, and nobody else retrieves the result

    async def _launch(self, files: CommandFiles, request: CommandRequest) -> HeldCommand:
        console_socket = None if request.terminal is None else files.console_socket
        argv = self._exec_argv(
            self._container_id,
            process=files.process,
            pid_file=files.pid_file,
            console_socket=console_socket,
        )
        try:
            return await self._keeper.start(
                files.key,
                argv,
                pid_file=files.pid_file,
                console_socket=console_socket,
                stdin=request.stdin,
                owner=self._uid_base + request.account.uid,
            )
        except LaunchFailed:
            if self._gone is not None:
                raise self._gone from None
            raise

    def _add(self, held: HeldCommand, record: CommandRecord) -> Command:
        command = Command(
            held,
            record,
            spool_dir=self._spool_dir,
            oom_kills=self._oom_kills,
            close_stdin=self._keeper.close_stdin,
            on_end=self._remember,
        )
        self._running[command.pid] = command
        return command

    def _remember(self, command: Command) -> None:
        self._discard(command)
        if self._running.get(command.pid) is command:
            del self._running[command.pid]
        self._purge()
        self._remembered.pop(command.pid, None)
        assert command.ended is not None
        self._note("command ended", command, status=command.ended.error or command.ended.status)
        self._remembered[command.pid] = (self._loop.time() + _REMEMBER_SECONDS, command)

    def _note(self, message: str, command: Command, **more: str) -> None:
        if command.request.is_noted:
            self._journal.note(message, _described(command) | more)

    def _discard(self, command: Command) -> None:
        self._keeper.forget(command.held)
        self._files(command.held.key).remove()

    def _purge(self) -> None:
        now = self._loop.time()
        for pid, (until, _) in list(self._remembered.items()):
            if until > now:
                return
            del self._remembered[pid]

    def _files(self, key: str) -> CommandFiles:
        return CommandFiles(self._keeper.commands_dir, key)


def _described(command: Command) -> dict[str, str]:
    request = command.request
    return {
        "pid": str(command.pid),
        "user": request.account.name,
        "command": shlex.join(request.argv),
    }


def _newest(commands: builtins.list[Command], tag: str) -> Command:
    for command in reversed(commands):
        if command.request.tag == tag:
            return command
    raise CommandNotFound(f"process with tag {tag} not found")
