import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from sandbox_server.commands.recording_repository import RecordingRepository
from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.repository import CommandRepository
from sandbox_server.commands.requests import columns_of, process_of
from sandbox_server.commands.terminal_repository import TerminalRepository
from sandbox_server.commands.waits import Waits
from sandbox_server.db.idempotency import IdempotencyRepository
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
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.jobs.kinds import AGENT_RUN
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import Record, RecordType
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.protocol.errors import ProcessGone
from sandbox_server.providers.protocol.processes import GroupSignal, ProcessSignal
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import WAIT, SandboxController

MOST_AT_ONCE = 500
"""Commands that one sandbox may run at once; each has a connection of its own."""

MOST_READ = 1024 * 1024
"""Bytes of each stream in one answer, which is in memory until its caller has taken it."""

MOST_OF_TENANT = 2500
"""Those of all its sandboxes. An engine has four files open for each, and opens 20,000 for all tenants."""

_ALL_KINDS = frozenset(CommandKind)
_ENDED_STATES = frozenset(CommandState) - COMMAND_LIVING
_LOOK_AGAIN_S = 2.0
_MOST_RECORDS = 1000
_FOUND_AGAIN_WITHIN = timedelta(seconds=5)


class Commands:
    """What callers may ask of commands. Each is on record before it runs, and its output while it does."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        recordings: Recordings,
        growth: LogNotifications,
        *,
        most_at_once: int = MOST_AT_ONCE,
        most_of_tenant: int = MOST_OF_TENANT,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._recordings = recordings
        self._growth = growth
        self._most_at_once = most_at_once
        self._most_of_tenant = most_of_tenant
        self._waits = Waits()

    async def start(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Command:
        """Start a command; gives it once it has started or failed to, or as it is when the wait is over.

        What it writes is recorded, whatever becomes of the caller.
        """
        if (made := await self._find_made(caller, idempotency)) is not None:
            return await self._wait_begun(caller, sandbox_id, made, wait=wait)
        used = await self._use(caller, sandbox_id, request.kind, wait=wait)
        self._require_room(caller, sandbox_id)
        command_id = new_id()
        row = await self._add(caller, command_id, used, request, idempotency)
        if isinstance(row, str):
            return await self._wait_begun(caller, sandbox_id, row, wait=wait)
        recording = self._recordings.begin(row, used, process_of(command_id, request))
        await _wait_for(recording.begun, wait)
        return row

    async def wait_ended(self, command: Command, *, wait: timedelta) -> Command:
        """Give a command once it has ended, or as it is when the wait is over."""
        return await self._wait_until(command, _ENDED_STATES, wait=wait)

    def end_waits(self) -> None:
        """Give back commands that are waited for as they are, since the server is about to stop."""
        self._waits.end()

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
            await self._controller.get(caller, sandbox_id)  # tells if it is that which is not there
            raise CommandNotFound(command_id)
        return row

    async def read_ends(self, command: Command, *, most: int = MOST_READ) -> Sequence[Record]:
        """Read the beginning and the end of a command's output, as far as they are kept."""
        async with without_transaction(self._sessions) as session:
            return await CommandOutputRepository(session).list_ends(command.id, most=most)

    async def read_stream(
        self, command: Command, stream: RecordType, *, offset: int
    ) -> Sequence[Record]:
        async with without_transaction(self._sessions) as session:
            part = await CommandOutputRepository(session).list_stream(
                command.id, stream, offset=offset, limit=_MOST_RECORDS
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
        """Write to a command's stdin, or its terminal; a paused sandbox wakes for it."""
        row, processes = await self._reach(caller, sandbox_id, command_id)
        if not row.stdin and row.cols is None:
            raise StdinClosed
        with _gone_is_told():
            await processes.send_input(command_id, content, terminal=row.cols is not None)

    async def close_input(self, caller: Caller, sandbox_id: str, command_id: str) -> None:
        """Let a command read the end of its stdin."""
        row, processes = await self._reach(caller, sandbox_id, command_id)
        if not row.stdin or row.cols is not None:
            raise StdinClosed
        with _gone_is_told():
            await processes.close_stdin(command_id)

    async def signal(
        self,
        caller: Caller,
        sandbox_id: str,
        command_id: str,
        signal: ProcessSignal | GroupSignal,
    ) -> None:
        """Send a signal to a command; what only a program in the sandbox can send, to all that it started too."""
        row, processes = await self._reach(caller, sandbox_id, command_id)
        with _gone_is_told():
            if isinstance(signal, ProcessSignal):
                await processes.send_signal(command_id, signal)
            elif row.pid is None:
                raise CommandNotRunning(row.state)
            else:
                await processes.signal_group(row.pid, signal)

    async def resize(
        self, caller: Caller, sandbox_id: str, command_id: str, size: TerminalSize
    ) -> None:
        """Give a terminal another size, which it is told, and all who see it."""
        _, processes = await self._reach(caller, sandbox_id, command_id)
        with _gone_is_told():
            await processes.resize(command_id, size)
        async with without_transaction(self._sessions) as session:
            await TerminalRepository(session).note_size(command_id, size)

    async def _find_made(self, caller: Caller, idempotency: Idempotency | None) -> str | None:
        if idempotency is None:
            return None
        async with without_transaction(self._sessions) as session:
            return await IdempotencyRepository(session).find(caller.tenant_id, idempotency)

    async def _use(
        self, caller: Caller, sandbox_id: str, kind: CommandKind, *, wait: timedelta
    ) -> UsableSandbox:
        if kind is CommandKind.SERVICE:  # nobody asked for it, so it wakes nothing
            return await self._controller.look_into(caller, sandbox_id)
        return await self._controller.use(caller, sandbox_id, wait=wait)

    async def _add(
        self,
        caller: Caller,
        command_id: str,
        used: UsableSandbox,
        request: CommandRequest,
        idempotency: Idempotency | None,
    ) -> Command | str:
        """Write a command down as ours; gives the id of another that the same request made meanwhile."""
        columns = {
            "id": command_id,
            "tenant_id": caller.tenant_id,
            "sandbox_id": used.row.id,
            **columns_of(request),
        }
        by, lease = self._recordings.recorder_name, self._recordings.lease
        is_followed_up = request.agent is not None and "afterwards" in request.agent
        if idempotency is None and not is_followed_up:
            async with without_transaction(self._sessions) as session:
                return await RecordingRepository(session).add(by=by, lease=lease, **columns)
        async with self._sessions.begin() as session:
            made = await IdempotencyRepository(session).claim(
                caller.tenant_id, idempotency, resource="command", resource_id=command_id
            )
            if made != command_id:
                return made
            if is_followed_up:
                await JobRepository(session).due(AGENT_RUN, command_id)
            return await RecordingRepository(session).add(by=by, lease=lease, **columns)

    async def _wait_begun(
        self, caller: Caller, sandbox_id: str, command_id: str, *, wait: timedelta
    ) -> Command:
        row = await self.get(caller, sandbox_id, command_id)
        begun = frozenset(CommandState) - {CommandState.STARTING}
        return await self._wait_until(row, begun, wait=wait)

    async def _wait_until(
        self, command: Command, states: Collection[CommandState], *, wait: timedelta
    ) -> Command:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait.total_seconds()
        recording = self._recordings.find(command.id)
        if recording is not None:
            ended = states is _ENDED_STATES
            await self._waits.wait_for(recording.over if ended else recording.begun, wait)
            command = recording.row
        with self._growth.follow(f"command/{command.id}") as grown:
            while command.state not in states and (left := self._left(until)) > 0:
                row = await self._read(command)
                if row is None or row.state in states:
                    return row or command
                command = row
                await self._waits.wait_for(grown, timedelta(seconds=min(left, _LOOK_AGAIN_S)))
                grown.clear()
        return command

    def _left(self, until: float) -> float:
        return 0 if self._waits.are_ended else until - asyncio.get_running_loop().time()

    async def _read(self, command: Command) -> Command | None:
        async with without_transaction(self._sessions) as session:
            return await CommandRepository(session).find(
                command.id, sandbox_id=command.sandbox_id, tenant_id=command.tenant_id
            )

    def _require_room(self, caller: Caller, sandbox_id: str) -> None:
        if self._recordings.count(sandbox_id) >= self._most_at_once:
            raise TooManyCommands("The sandbox", self._most_at_once)
        if self._recordings.count(caller.tenant_id) >= self._most_of_tenant:
            raise TooManyCommands("The tenant", self._most_of_tenant)

    async def _reach(
        self, caller: Caller, sandbox_id: str, command_id: str
    ) -> tuple[Command, Processes]:
        row = await self.get(caller, sandbox_id, command_id)
        if row.state not in COMMAND_LIVING:
            raise CommandNotRunning(row.state)
        with self._growth.follow(f"command/{command_id}") as grown:
            used = await self._controller.use(caller, sandbox_id)
            await self._wait_recorded(command_id, grown, woken=used.woken)
        return row, used.backend.processes(used.access)

    async def _wait_recorded(self, command_id: str, grown: asyncio.Event, *, woken: bool) -> None:
        """Let whoever records a command find it again, so that nothing is lost of what it does next."""
        recording = self._recordings.find(command_id)
        if recording is not None:
            await _wait_for(recording.connected, _FOUND_AGAIN_WITHIN)
        elif woken:
            await _wait_for(grown, _FOUND_AGAIN_WITHIN)


@contextmanager
def _gone_is_told() -> Iterator[None]:
    try:
        yield
    except ProcessGone:
        raise CommandNotRunning("gone") from None


async def _wait_for(event: asyncio.Event, wait: timedelta) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(wait.total_seconds()):
            await event.wait()
