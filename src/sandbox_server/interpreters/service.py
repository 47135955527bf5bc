from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.commands.recording import Recording
from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.service import Commands
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.commands import CommandKind, CommandRequest, CommandState
from sandbox_server.domain.errors import (
    CodeExecutionNotFound,
    CodeRefused,
    CodeResultNotFound,
    CommandNotFound,
    SandboxError,
)
from sandbox_server.domain.requests import Idempotency
from sandbox_server.interpreters.connection import InterpreterConnections
from sandbox_server.interpreters.execution_records import OUTCOME, ExecutionRecords
from sandbox_server.interpreters.recording import CodeCall, ExecutionRecording
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import Record
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import WAIT

_KINDS = frozenset({CommandKind.CODE})
_MAX_READ = 2**20
_DEFAULT_LANGUAGE = "python"


@dataclass(frozen=True)
class StartedExecution:
    """An execution, and its recording unless an earlier request with the same idempotency key has started it."""

    row: Command
    recording: ExecutionRecording | None


class CodeExecutions:
    """Executions of code by the interpreter in a sandbox; each is recorded like a command."""

    def __init__(
        self, sessions: Sessions, commands: Commands, connections: InterpreterConnections
    ) -> None:
        self._sessions = sessions
        self._commands = commands
        self._connections = connections

    async def start(
        self,
        caller: Caller,
        sandbox_id: str,
        call: CodeCall,
        *,
        timeout: timedelta,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> StartedExecution:
        """Run code; returns once it runs, or when the wait is over. It is recorded even if the caller disconnects."""
        begun: list[ExecutionRecording] = []

        def begin(recordings: Recordings, row: Command, used: UsableSandbox) -> Recording:
            recording = recordings.open(row, ExecutionRecording)
            begun.append(recording)
            recordings.run_recording(recording, recording.execute(self._connections, used, call))
            return recording

        row = await self._commands.start(
            caller,
            sandbox_id,
            _to_request(call, timeout),
            idempotency=idempotency,
            wait=wait,
            begin=begin,
        )
        if row.state is CommandState.FAILED:
            raise _failure_of(row, begun)
        return StartedExecution(row, begun[0] if begun else None)

    async def wait_ended(
        self, started: StartedExecution, *, wait: timedelta
    ) -> tuple[Command, ExecutionRecords]:
        """Return the execution and its records once it has ended, or as they are when the wait is over."""
        row = await self._commands.wait_ended(started.row, wait=wait)
        stored = None
        if started.recording is not None and row.ended_at is not None:
            stored = started.recording.stored.read()
        return row, stored or await self.read(row)

    async def get(self, caller: Caller, sandbox_id: str, execution_id: str) -> Command:
        try:
            return await self._commands.get(caller, sandbox_id, execution_id, kinds=_KINDS)
        except CommandNotFound:
            raise CodeExecutionNotFound(execution_id) from None

    async def list_page(
        self, caller: Caller, sandbox_id: str, *, limit: int, before: str | None = None
    ) -> Sequence[Command]:
        """List a sandbox's executions, newest first, starting before the id `before`."""
        return await self._commands.list_page(
            caller, sandbox_id, kinds=_KINDS, limit=limit, before=before
        )

    async def read(self, execution: Command) -> ExecutionRecords:
        async with without_transaction(self._sessions) as session:
            output = CommandOutputRepository(session)
            return ExecutionRecords(
                await output.list_ends(execution.id, max_bytes=_MAX_READ),
                await output.list_types(execution.id, OUTCOME),
            )

    async def interrupt(self, execution: Command) -> None:
        """Interrupt the code, at whichever server it runs; nothing happens if it has ended."""
        await self._commands.interrupt(execution)

    async def get_result(self, execution: Command, number: int) -> Record:
        async with without_transaction(self._sessions) as session:
            found = await CommandOutputRepository(session).find_result(execution.id, number)
        if found is None:
            raise CodeResultNotFound(str(number))
        return found


def _to_request(call: CodeCall, timeout: timedelta) -> CommandRequest:
    language = call.language or (None if call.context_id else _DEFAULT_LANGUAGE)
    return CommandRequest(
        cmd=call.code,
        kind=CommandKind.CODE,
        timeout=timeout,
        code={"language": language, "context_id": call.context_id},
    )


def _failure_of(row: Command, begun: Sequence[ExecutionRecording]) -> SandboxError:
    failures = [recording.failure for recording in begun if recording.failure is not None]
    return failures[0] if failures else CodeRefused(row.state_reason or "reason not recorded")
