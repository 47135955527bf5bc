from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from sandbox_server.commands.service import Commands
from sandbox_server.commands.terminal_repository import TerminalRepository
from sandbox_server.commands.waiting import require_started
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
    NotReady,
    SandboxPaused,
    TerminalNotFound,
)
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.state import State, Target
from sandbox_server.log.hub import StreamHub
from sandbox_server.providers.protocol.processes import ProcessSignal
from sandbox_server.sandboxes.service import WAIT, SandboxController
from sandbox_server.sandboxes.waiting import ASK_AGAIN
from sandbox_server.terminals.source import TerminalSource
from sandbox_server.terminals.view import TerminalView

_KINDS = frozenset({CommandKind.TERMINAL})
_MAX_INPUT = 32 * 1024
_KILL_TIMEOUT = timedelta(seconds=5)


class Terminals:
    """Use cases of terminals. A terminal is a command with a PTY."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        commands: Commands,
        streams: StreamHub,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._commands = commands
        self._streams = streams

    async def create(
        self,
        caller: Caller,
        sandbox_id: str,
        request: CommandRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Command:
        """Start a terminal. It runs whether or not it has viewers."""
        row = await self._commands.start(
            caller, sandbox_id, request, idempotency=idempotency, wait=wait
        )
        return require_started(row)

    async def get(self, caller: Caller, sandbox_id: str, terminal_id: str) -> Command:
        try:
            return await self._commands.get(caller, sandbox_id, terminal_id, kinds=_KINDS)
        except CommandNotFound:
            raise TerminalNotFound(terminal_id) from None

    async def list_page(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        states: Collection[CommandState] | None,
        limit: int,
        before: str | None = None,
    ) -> Sequence[Command]:
        """List a sandbox's terminals, newest first, from the one before the id `before`."""
        return await self._commands.list_page(
            caller,
            sandbox_id,
            kinds=_KINDS,
            states=states or COMMAND_LIVING,
            limit=limit,
            before=before,
        )

    async def kill(self, caller: Caller, sandbox_id: str, terminal_id: str) -> None:
        """Kill a terminal and its processes; no effect if it has ended."""
        row = await self.get(caller, sandbox_id, terminal_id)
        if row.state in COMMAND_LIVING:
            with suppress(CommandNotRunning):  # it has just ended
                await self._commands.signal(caller, sandbox_id, row.id, ProcessSignal.KILL)
            await self._commands.wait_ended(row, wait=_KILL_TIMEOUT)

    async def resize(
        self, caller: Caller, sandbox_id: str, terminal_id: str, size: TerminalSize
    ) -> Command:
        """Resize a terminal and notify its viewers. Does not resume a paused sandbox."""
        row = await self.get(caller, sandbox_id, terminal_id)
        sandbox = await self._controller.get(caller, sandbox_id)
        if row.state in COMMAND_LIVING and sandbox.target is Target.PAUSED:
            raise SandboxPaused(sandbox_id, "Resizing a terminal does not resume it.")
        if row.state in COMMAND_LIVING and sandbox.state is not State.RUNNING:
            raise NotReady(sandbox.state, retry_after=ASK_AGAIN)
        await self._commands.resize(caller, sandbox_id, row.id, size)
        return await self.get(caller, sandbox_id, terminal_id)

    async def type(self, caller: Caller, sandbox_id: str, terminal_id: str, content: bytes) -> None:
        """Write to the terminal, in order; resumes a paused sandbox."""
        for start in range(0, len(content), _MAX_INPUT):
            part = content[start : start + _MAX_INPUT]
            await self._commands.send_input(caller, sandbox_id, terminal_id, part)

    async def view(self, row: Command, *, after: int | None) -> TerminalView:
        """View a terminal from the byte `after` on, or everything that is retained."""
        offset = min(after or 0, row.stdout_size)
        position = 0
        if offset:
            async with without_transaction(self._sessions) as session:
                position = await TerminalRepository(session).find_position(row.id, offset=offset)
        source = TerminalSource(tenant_id=row.tenant_id, command_id=row.id)
        follower = await self._streams.follow(source, after=position)
        return TerminalView(follower, offset=offset)
