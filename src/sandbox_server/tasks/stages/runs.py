from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.agents.results import find_result
from sandbox_server.commands.process_tree import end_processes_with
from sandbox_server.commands.service import Commands
from sandbox_server.db.models import Command, Task, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.agents import RunState, state_of_run
from sandbox_server.domain.commands import COMMAND_LIVING, CommandKind, CommandRequest, CommandState
from sandbox_server.domain.errors import CommandNotRunning
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.tasks.events import TaskRunChanged
from sandbox_server.domain.tasks.stages import RunKind, RunOutcome
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from sandbox_server.log.serialize import transcribe
from sandbox_server.providers.protocol.processes import ProcessSignal
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.transitions import TaskMove, apply_move, lock_seen

_START_WAIT = timedelta(seconds=20)
# More than `sandbox-tools run-agent` takes to end an agent that ignores all but SIGKILL.
_AGENT_GRACE = timedelta(seconds=50)
_MARK = "SANDBOX_TASK_RUN"
"""All processes of a run inherit it, by which also detached ones are found."""

_MOST_OUTPUT = 64 * 1024
_LONGEST_SUMMARY = 16 * 1024
_COMMAND_NOT_FOUND = frozenset({126, 127})
_KILLED = frozenset({137, -1})
_DISK_FULL = "No space left on device"
_OUTCOMES = {
    RunState.SUCCEEDED: RunOutcome.SUCCEEDED,
    RunState.FAILED: RunOutcome.FAILED,
    RunState.INTERRUPTED: RunOutcome.INTERRUPTED,
    RunState.TIMED_OUT: RunOutcome.TIMED_OUT,
    RunState.LOST: RunOutcome.LOST,
}


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to start: no cause starts two."""

    kind: RunKind
    cause: str
    cause_ref: str
    sandbox_id: str
    head_before: str | None
    told: Sequence[str] = ()
    """Ids of the messages that it is told."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The outcome of a run's command."""

    outcome: RunOutcome
    summary: str
    cost_usd: float | None = None
    session_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """The end of a run, with what changes in its task."""

    result: RunResult
    head_after: str | None = None
    move: TaskMove = field(default_factory=TaskMove)


class TaskRuns:
    """The runs of tasks: each is a command in the sandbox, whose output is recorded like any other."""

    def __init__(self, sessions: Sessions, commands: Commands) -> None:
        self._sessions = sessions
        self._commands = commands

    async def find_open(self, task_id: str) -> TaskRun | None:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).find_open_run(task_id)

    async def find_last(self, task_id: str, kind: RunKind) -> TaskRun | None:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).find_last_run(task_id, kind)

    async def find(self, task_id: str, kind: RunKind, cause: str, cause_ref: str) -> TaskRun | None:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).find_run(
                task_id, kind=kind, cause=cause, cause_ref=cause_ref
            )

    async def begin(
        self, seen: Task, new: NewRun, *, values: Mapping[str, Any] | None = None
    ) -> TaskRun:
        """Commit a run before its command is started."""
        async with self._sessions.begin() as session:
            row = await lock_seen(session, seen)
            history = TaskHistoryRepository(session)
            run = await history.add_run(
                row.id,
                kind=new.kind,
                cause=new.cause,
                cause_ref=new.cause_ref,
                sandbox_id=new.sandbox_id,
                head_before=new.head_before,
            )
            if new.told:
                await history.mark_told(new.told, run.number)
            await apply_move(session, row, TaskMove(values=values or {}))
        return run

    async def start_command(self, caller: Caller, run: TaskRun, request: CommandRequest) -> Command:
        """Start the command of a run, or find the one that a crash has left without a note."""
        marked = replace(request, envs={**request.envs, _MARK: _name(run)})
        return await self._commands.start(
            caller, run.sandbox_id, marked, idempotency=_once(run), wait=_START_WAIT
        )

    async def start(
        self, caller: Caller, seen: Task, run: TaskRun, request: CommandRequest
    ) -> Command:
        """Start the command of a run, and note it."""
        command = await self.start_command(caller, run, request)
        async with self._sessions.begin() as session:
            row = await lock_seen(session, seen)
            noted = await TaskHistoryRepository(session).get_run(run.task_id, run.number)
            noted.command_id, noted.started_at = command.id, command.created_at
            event = tell_run(noted, f"Started run {run.number} ({run.kind}, {run.cause}).")
            await apply_move(session, row, TaskMove(events=[event]))
        return command

    async def read_command(self, run: TaskRun) -> Command | None:
        """Read the command of a run; None if it was removed meanwhile."""
        async with without_transaction(self._sessions) as session:
            return await session.get(Command, run.command_id)

    async def read_result(self, command: Command | None) -> RunResult | None:
        """Read what came of a command; None while it is running."""
        if command is None:
            return RunResult(outcome=RunOutcome.LOST, summary="The record of the run was removed.")
        if command.state in COMMAND_LIVING:
            return None
        if command.kind is CommandKind.AGENT:
            return await self._read_agent_result(command)
        text = await self.read_output(command)
        outcome = _OUTCOMES[state_of_run(command.state, command.exit_code)]
        return RunResult(outcome=outcome, summary=text[-_LONGEST_SUMMARY:])

    async def read_check_result(self, command: Command | None) -> RunResult | None:
        """Read what came of checks, and whether it says anything about the work."""
        result = await self.read_result(command)
        if result is None or command is None or result.outcome is RunOutcome.SUCCEEDED:
            return result
        return RunResult(outcome=_check_outcome(command, result.summary), summary=result.summary)

    async def read_output(self, command: Command) -> str:
        """Read the end of what a command has printed, errors last."""
        records = await self._commands.read_ends(command, max_bytes=2 * _MOST_OUTPUT)
        streams = (
            (RecordType.STDOUT, command.stdout_size),
            (RecordType.STDERR, command.stderr_size),
        )
        texts = [transcribe(records, stream, size=size).text for stream, size in streams]
        joined = "\n".join(text.strip() for text in texts if text.strip())
        return joined[-_MOST_OUTPUT:] or command.state_reason or ""

    async def interrupt(
        self, caller: Caller, used: UsableSandbox, run: TaskRun, *, waited: timedelta
    ) -> None:
        """End a run: agents with a result are told to, and ended by force if that takes them too long."""
        command = await self.read_command(run)
        if command is None or command.kind is not CommandKind.AGENT or waited > _AGENT_GRACE:
            await end_processes(used, run)
            return
        with suppress(CommandNotRunning):
            await self._commands.signal(caller, run.sandbox_id, command.id, ProcessSignal.TERM)

    async def end(self, seen: Task, run: TaskRun, ended: EndedRun) -> Task:
        """Commit the end of a run, together with what follows from it."""
        async with self._sessions.begin() as session:
            row = await lock_seen(session, seen)
            noted = await TaskHistoryRepository(session).get_run(run.task_id, run.number)
            if noted.ended_at is None:
                await close_run(session, noted, ended)
            event = tell_run(noted, f"Run {run.number} ({run.kind}) has ended: {noted.outcome}.")
            move = ended.move
            values = {**_cost(row, ended.result), **move.values}
            await apply_move(
                session,
                row,
                TaskMove(
                    stage=move.stage,
                    reason=move.reason,
                    awaits=move.awaits,
                    values=values,
                    events=[event, *move.events],
                ),
            )
        return row

    async def _read_agent_result(self, command: Command) -> RunResult:
        async with without_transaction(self._sessions) as session:
            found = await find_result(CommandOutputRepository(session), command)
        assert found is not None
        return RunResult(
            outcome=_OUTCOMES[found.state],
            summary=found.output[-_LONGEST_SUMMARY:],
            cost_usd=found.cost,
            session_id=found.session_id,
        )


async def close_run(session: AsyncSession, run: TaskRun, ended: EndedRun) -> None:
    """Note what came of a locked run."""
    result = ended.result
    run.outcome, run.summary = result.outcome, result.summary
    run.cost_usd, run.head_after = result.cost_usd, ended.head_after
    run.ended_at = await TaskRepository(session).clock()
    run.started_at = run.started_at or run.ended_at


def _cost(task: Task, result: RunResult) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if result.cost_usd is not None:
        values["spent_usd"] = task.spent_usd + result.cost_usd
    if result.session_id is not None:
        values["session_id"] = result.session_id
    return values


async def end_processes(used: UsableSandbox, run: TaskRun) -> None:
    """End all processes of a run."""
    await end_processes_with(used, _MARK, _name(run))


def _name(run: TaskRun) -> str:
    return f"task/{run.task_id}/run/{run.number}"


def _once(run: TaskRun) -> Idempotency:
    key = _name(run)
    return Idempotency.of(key, method="RUN", path=run.task_id, body=run.number)


def _check_outcome(command: Command, output: str) -> RunOutcome:
    match command.state:
        case CommandState.TIMED_OUT:
            return RunOutcome.TIMED_OUT
        case CommandState.LOST:
            return RunOutcome.LOST
        case CommandState.KILLED | CommandState.FAILED:
            return RunOutcome.INFRASTRUCTURE
    if command.exit_code in _COMMAND_NOT_FOUND:
        return RunOutcome.INERT
    if command.exit_code in _KILLED or _DISK_FULL in output:
        return RunOutcome.INFRASTRUCTURE
    return RunOutcome.FAILED


def tell_run(run: TaskRun, reason: str) -> TaskRunChanged:
    """Describe that a run was started, or has ended."""
    return TaskRunChanged(
        task_id=run.task_id,
        cause=Cause.TASK,
        actor=SERVER,
        reason=reason,
        number=run.number,
        kind=RunKind(run.kind),
        command_id=run.command_id,
        outcome=None if run.outcome is None else RunOutcome(run.outcome),
        attempt=run.attempt or None,
    )
