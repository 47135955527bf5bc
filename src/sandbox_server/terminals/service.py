from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from sandbox_server.commands.service import Commands
from sandbox_server.commands.terminal_repository import TerminalRepository
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
    CommandNotStarted,
    NotReady,
    SandboxPaused,
    TerminalNotFound,
)
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.state import State, Target
from sandbox_server.log.hub import StreamHub
from sandbox_server.providers.protocol.processes import ProcessSignal
from sandbox_server.sandboxes.answers import ASK_AGAIN
from sandbox_server.sandboxes.service import WAIT, SandboxController
from sandbox_server.terminals.source import TerminalSource
from sandbox_server.terminals.view import View

_KINDS = frozenset({CommandKind.TERMINAL})
_LARGEST_INPUT = 32 * 1024
_UNTIL_KILLED = timedelta(seconds=5)


class Terminals:
    """What callers may ask of terminals, which are commands whose output is all that they showed."""

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
        """Start a terminal, which runs on whether or not anybody sees it."""
        row = await self._commands.start(
            caller, sandbox_id, request, idempotency=idempotency, wait=wait
        )
        if row.state is CommandState.FAILED:
            raise CommandNotStarted(row.state_reason or "nobody noted why")
        return row

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
        """End a terminal with what runs in it; one that has ended stays as it is."""
        row = await self.get(caller, sandbox_id, terminal_id)
        if row.state in COMMAND_LIVING:
            with suppress(CommandNotRunning):  # it has ended since
                await self._commands.signal(caller, sandbox_id, row.id, ProcessSignal.KILL)
            await self._commands.wait_ended(row, wait=_UNTIL_KILLED)

    async def resize(
        self, caller: Caller, sandbox_id: str, terminal_id: str, size: TerminalSize
    ) -> Command:
        """Give a terminal another size, which all who see it are told; that wakes no sandbox."""
        row = await self.get(caller, sandbox_id, terminal_id)
        sandbox = await self._controller.get(caller, sandbox_id)
        if row.state in COMMAND_LIVING and sandbox.target is Target.PAUSED:
            raise SandboxPaused(sandbox_id, "A new size does not resume it.")
        if row.state in COMMAND_LIVING and sandbox.state is not State.RUNNING:
            raise NotReady(sandbox.state, retry_after=ASK_AGAIN)
        await self._commands.resize(caller, sandbox_id, row.id, size)
        return await self.get(caller, sandbox_id, terminal_id)

    async def type(self, caller: Caller, sandbox_id: str, terminal_id: str, typed: bytes) -> None:
        """Have a terminal read what somebody types, in its order; a paused sandbox wakes."""
        for start in range(0, len(typed), _LARGEST_INPUT):
            part = typed[start : start + _LARGEST_INPUT]
            await self._commands.send_input(caller, sandbox_id, terminal_id, part)

    async def view(self, row: Command, *, after: int | None) -> View:
        """See a terminal from that byte on, or all that is kept of what it showed."""
        offset = min(after or 0, row.stdout_size)
        position = 0
        if offset:
            async with without_transaction(self._sessions) as session:
                position = await TerminalRepository(session).find_position(row.id, offset=offset)
        source = TerminalSource(tenant_id=row.tenant_id, command_id=row.id)
        follower = await self._streams.follow(source, after=position)
        return View(follower, offset=offset)
