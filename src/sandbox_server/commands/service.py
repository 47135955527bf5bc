from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from sandbox_server.commands.recording import Recording
from sandbox_server.commands.recording_repository import RecordingRepository
from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.repository import CommandRepository
from sandbox_server.commands.requests import CommandInsertion, to_process
from sandbox_server.commands.terminal_repository import TerminalRepository
from sandbox_server.commands.waiting import (
    ENDED_STATES,
    STARTED_STATES,
    CommandWaiter,
    wait_for_event,
)
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.commands import (
    COMMAND_LIVING,
    CommandKind,
    CommandRequest,
    CommandState,
    TerminalSize,
)
from sandbox_server.domain.errors import (
    CommandNotFound,
    CommandNotRunning,
    StdinClosed,
    TooManyCommands,
)
from sandbox_server.domain.requests import Idempotency
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import Record, RecordType
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.protocol.errors import ProcessGone
from sandbox_server.providers.protocol.processes import GroupSignal, ProcessSignal
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import WAIT, SandboxController

MAX_PER_SANDBOX = 500
"""Maximum concurrent commands of a sandbox; each has its own connection."""

MAX_READ = 1024 * 1024
"""Bytes of each stream in one response, which is held in memory until it is sent."""

MAX_PER_TENANT = 2500
"""Maximum concurrent commands of a tenant. The engine opens four files for each, and at most 20,000 for all tenants."""

Begin = Callable[[Recordings, Command, UsableSandbox], Recording]
"""Starts a command whose row exists, and its recording."""

_ALL_KINDS = frozenset(CommandKind)
_MAX_RECORDS = 1000


class Commands:
    """Use cases of commands. A command is stored before it runs, and its output while it runs."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        recordings: Recordings,
        log_notifications: LogNotifications,
        *,
        max_per_sandbox: int = MAX_PER_SANDBOX,
        max_per_tenant: int = MAX_PER_TENANT,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._recordings = recordings
        self._log_notifications = log_notifications
        self._max_per_sandbox = max_per_sandbox
        self._max_per_tenant = max_per_tenant
        self._insertion = CommandInsertion(
            sessions, by=recordings.recorder_name, lease=recordings.lease
        )
        self._waiter = CommandWaiter(sessions, recordings, log_notifications)

    async def start(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
        begin: Begin | None = None,
    ) -> Command:
        """Start a command; returns once it has started or failed, or when the wait is over.

        Its output is recorded even if the caller disconnects. `begin` starts it, unless it is a process.
        """
        inserted = await self._insert(caller, sandbox_id, request, idempotency, wait=wait)
        if isinstance(inserted, str):
            return await self._wait_started(caller, sandbox_id, inserted, wait=wait)
        used, row = inserted
        if begin is None:
            recording = self._recordings.begin(row, used, to_process(row.id, request))
        else:
            recording = begin(self._recordings, row, used)
        await wait_for_event(recording.started, wait)
        return row

    async def wait_ended(self, command: Command, *, wait: timedelta) -> Command:
        """Return the command once it has ended, or as it is when the wait is over."""
        return await self._waiter.wait_until(command, ENDED_STATES, wait=wait)

    def end_waits(self) -> None:
        """End all waits, because the server is about to stop."""
        self._waiter.end()

    async def get(
        self,
        caller: Caller,
        sandbox_id: str,
        command_id: str,
        *,
        kinds: Collection[CommandKind] = _ALL_KINDS,
    ) -> Command:
        async with without_transaction(self._sessions) as session:
            row = await CommandRepository(session).find(
                command_id, sandbox_id=sandbox_id, tenant_id=caller.tenant_id
            )
        if row is None or row.kind not in kinds:
            await self._controller.get(
                caller, sandbox_id
            )  # raises if the sandbox does not exist either
            raise CommandNotFound(command_id)
        return row

    async def read_ends(self, command: Command, *, max_bytes: int = MAX_READ) -> Sequence[Record]:
        """Read the retained beginning and end of a command's output."""
        async with without_transaction(self._sessions) as session:
            return await CommandOutputRepository(session).list_ends(command.id, max_bytes=max_bytes)

    async def read_stream(
        self, command: Command, stream: RecordType, *, offset: int
    ) -> Sequence[Record]:
        async with without_transaction(self._sessions) as session:
            part = await CommandOutputRepository(session).list_stream(
                command.id, stream, offset=offset, limit=_MAX_RECORDS
            )
        return part.records

    async def list_page(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        kinds: Collection[CommandKind],
        states: Collection[CommandState] = (),
        limit: int,
        before: str | None = None,
    ) -> Sequence[Command]:
        """List a sandbox's commands, newest first, from the one before the id `before`."""
        await self._controller.get(caller, sandbox_id)
        async with without_transaction(self._sessions) as session:
            return await CommandRepository(session).list_page(
                sandbox_id, kinds=kinds, states=states, limit=limit, before=before
            )

    async def send_input(
        self, caller: Caller, sandbox_id: str, command_id: str, content: bytes
    ) -> None:
        """Write to a command's stdin or terminal; resumes a paused sandbox."""
        row, processes = await self._find_running(caller, sandbox_id, command_id)
        if not row.stdin and row.cols is None:
            raise StdinClosed
        with _report_ended():
            await processes.send_input(command_id, content, terminal=row.cols is not None)

    async def close_input(self, caller: Caller, sandbox_id: str, command_id: str) -> None:
        """Close a command's stdin."""
        row, processes = await self._find_running(caller, sandbox_id, command_id)
        if not row.stdin or row.cols is not None:
            raise StdinClosed
        with _report_ended():
            await processes.close_stdin(command_id)

    async def signal(
        self,
        caller: Caller,
        sandbox_id: str,
        command_id: str,
        signal: ProcessSignal | GroupSignal,
    ) -> None:
        """Send a signal to a command. A group signal also reaches the processes that it started."""
        row, processes = await self._find_running(caller, sandbox_id, command_id)
        with _report_ended():
            if isinstance(signal, ProcessSignal):
                await processes.send_signal(command_id, signal)
            elif row.pid is None:
                raise CommandNotRunning(row.state)
            else:
                await processes.signal_group(row.pid, signal)

    async def interrupt(self, command: Command) -> None:
        """Interrupt what the server that records the command runs on its own connection."""
        async with without_transaction(self._sessions) as session:
            await RecordingRepository(session).interrupt(command.id)

    async def resize(
        self, caller: Caller, sandbox_id: str, command_id: str, size: TerminalSize
    ) -> None:
        """Resize a terminal and record the size for its viewers."""
        _, processes = await self._find_running(caller, sandbox_id, command_id)
        with _report_ended():
            await processes.resize(command_id, size)
        async with without_transaction(self._sessions) as session:
            await TerminalRepository(session).note_size(command_id, size)

    async def _insert(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        idempotency: Idempotency | None,
        *,
        wait: timedelta,
    ) -> tuple[UsableSandbox, Command] | str:
        """Insert a command and return it with its sandbox, or the id of the one that the same request has created."""
        if self._has_room(caller, sandbox_id):
            backends = self._controller.list_backends_with("commands")
            added = await self._insertion.add_if_running(
                caller, sandbox_id, request, idempotency, backends=backends
            )
            if added is not None:
                sandbox, row = added
                # Not awaited: a caller that is cancelled here would leave a command that is never started.
                self._controller.activity.note(sandbox)
                return self._controller.reach_into(sandbox), row
        if (created := await self._insertion.find_created(caller, idempotency)) is not None:
            return created
        used = await self._use_sandbox(caller, sandbox_id, request.kind, wait=wait)
        used.backend.require("commands")
        self._require_room(caller, sandbox_id)
        inserted = await self._insertion.add(caller, used.row.id, request, idempotency)
        return inserted if isinstance(inserted, str) else (used, inserted)

    async def _use_sandbox(
        self, caller: Caller, sandbox_id: str, kind: CommandKind, *, wait: timedelta
    ) -> UsableSandbox:
        if kind is CommandKind.SERVICE:  # not requested by a caller, so it resumes nothing
            return await self._controller.look_into(caller, sandbox_id)
        return await self._controller.use(caller, sandbox_id, wait=wait)

    async def _wait_started(
        self, caller: Caller, sandbox_id: str, command_id: str, *, wait: timedelta
    ) -> Command:
        row = await self.get(caller, sandbox_id, command_id)
        return await self._waiter.wait_until(row, STARTED_STATES, wait=wait)

    def _has_room(self, caller: Caller, sandbox_id: str) -> bool:
        count = self._recordings.count
        return (
            count(sandbox_id) < self._max_per_sandbox
            and count(caller.tenant_id) < self._max_per_tenant
        )

    def _require_room(self, caller: Caller, sandbox_id: str) -> None:
        if self._recordings.count(sandbox_id) >= self._max_per_sandbox:
            raise TooManyCommands("The sandbox", self._max_per_sandbox)
        if self._recordings.count(caller.tenant_id) >= self._max_per_tenant:
            raise TooManyCommands("The tenant", self._max_per_tenant)

    async def _find_running(
        self, caller: Caller, sandbox_id: str, command_id: str
    ) -> tuple[Command, Processes]:
        row = await self.get(caller, sandbox_id, command_id)
        if row.state not in COMMAND_LIVING:
            raise CommandNotRunning(row.state)
        with self._log_notifications.follow(f"command/{command_id}") as log_grew:
            used = await self._controller.use(caller, sandbox_id)
            await self._waiter.wait_connected(command_id, log_grew, woken=used.woken)
        return row, used.backend.processes(used.access)


@contextmanager
def _report_ended() -> Iterator[None]:
    try:
        yield
    except ProcessGone:
        raise CommandNotRunning("gone") from None
