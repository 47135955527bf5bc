from collections.abc import Collection, Sequence
from datetime import timedelta

from sandbox_server.agents.requests import to_command_request
from sandbox_server.agents.results import AgentResult, find_result
from sandbox_server.commands.service import Commands
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.agents import AgentRunRequest
from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.domain.errors import AgentRunNotFound, CommandNotFound
from sandbox_server.domain.requests import Idempotency
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.providers.protocol.processes import ProcessSignal
from sandbox_server.sandboxes.service import WAIT

_KINDS = frozenset({CommandKind.AGENT})


class AgentRuns:
    """Runs of coding agents; each is a command whose output is recorded."""

    def __init__(self, sessions: Sessions, commands: Commands) -> None:
        self._sessions = sessions
        self._commands = commands

    async def start(
        self,
        caller: Caller,
        sandbox_id: str,
        request: AgentRunRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Command:
        """Start an agent; it keeps running and is recorded even if the caller disconnects."""
        return await self._commands.start(
            caller, sandbox_id, to_command_request(request), idempotency=idempotency, wait=wait
        )

    async def wait_ended(self, run: Command, *, wait: timedelta) -> Command:
        return await self._commands.wait_ended(run, wait=wait)

    async def find_result(self, run: Command) -> AgentResult | None:
        """Find the result in a run's output; a run that has not ended has none."""
        async with without_transaction(self._sessions) as session:
            return await find_result(CommandOutputRepository(session), run)

    async def get(self, caller: Caller, sandbox_id: str, run_id: str) -> Command:
        try:
            return await self._commands.get(caller, sandbox_id, run_id, kinds=_KINDS)
        except CommandNotFound:
            raise AgentRunNotFound(run_id) from None

    async def list_page(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        states: Collection[CommandState] = (),
        limit: int,
        before: str | None = None,
    ) -> Sequence[Command]:
        """List a sandbox's runs, newest first, starting before the id `before`."""
        return await self._commands.list_page(
            caller, sandbox_id, kinds=_KINDS, states=states, limit=limit, before=before
        )

    async def interrupt(self, caller: Caller, sandbox_id: str, run_id: str) -> None:
        """Interrupt the agent, which ends the run with a result."""
        run = await self.get(caller, sandbox_id, run_id)
        await self._commands.signal(caller, sandbox_id, run.id, ProcessSignal.TERM)
