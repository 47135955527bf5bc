from collections.abc import Sequence

from sandbox_server.db.models import Command, TaskAttempt, TaskMessage, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.commands import CommandRequest
from sandbox_server.domain.tasks.stages import RunKind
from sandbox_server.tasks.attempts.transitions import (
    AttemptMove,
    apply_attempt_move,
    lock_attempt,
)
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.stages.runs import EndedRun, NewRun, TaskRuns, close_run, tell_run


class AttemptRuns:
    """The runs of attempts: one at a time in each attempt."""

    def __init__(self, sessions: Sessions, commands: TaskRuns) -> None:
        self._sessions = sessions
        self.commands = commands

    async def find_open(self, attempt: TaskAttempt) -> TaskRun | None:
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            return await history.find_open_run(attempt.task_id, attempt=attempt.number)

    async def find_last(self, attempt: TaskAttempt, kind: RunKind) -> TaskRun | None:
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            return await history.find_last_run(attempt.task_id, kind, attempt=attempt.number)

    async def list_untold(self, attempt: TaskAttempt) -> Sequence[TaskMessage]:
        """List the messages that this attempt was not told."""
        async with without_transaction(self._sessions) as session:
            history = TaskHistoryRepository(session)
            return await history.list_untold(attempt.task_id, attempt=attempt.number)

    async def list_told(self, run: TaskRun) -> Sequence[TaskMessage]:
        async with without_transaction(self._sessions) as session:
            return await TaskHistoryRepository(session).get_messages(run.told)

    async def begin(self, seen: TaskAttempt, new: NewRun) -> TaskRun:
        """Commit a run before its command is started; the runs of all attempts count."""
        async with self._sessions.begin() as session:
            task, row = await lock_attempt(session, seen)
            run = await TaskHistoryRepository(session).add_run(
                row.task_id,
                attempt=row.number,
                kind=new.kind,
                cause=new.cause,
                cause_ref=f"{row.number}/{new.cause_ref}",
                sandbox_id=new.sandbox_id,
                head_before=new.head_before,
                told=[*new.told],
            )
            is_agent = new.kind is RunKind.AGENT
            task.runs += is_agent
            values = {"runs": row.runs + is_agent}
            await apply_attempt_move(session, task, row, AttemptMove(values=values))
        return run

    async def start(self, work: AttemptWork, run: TaskRun, request: CommandRequest) -> Command:
        """Start the command of a run, and note it."""
        command = await self.commands.start_command(work.caller, run, request)
        async with self._sessions.begin() as session:
            task, row = await lock_attempt(session, work.attempt)
            noted = await TaskHistoryRepository(session).get_run(run.task_id, run.number)
            noted.command_id, noted.started_at = command.id, command.created_at
            told = f"Started run {run.number} ({run.kind}, {run.cause}) of attempt {row.number}."
            move = AttemptMove(events=[tell_run(noted, told)])
            await apply_attempt_move(session, task, row, move)
        return command

    async def end(
        self, seen: TaskAttempt, run: TaskRun, ended: EndedRun, move: AttemptMove
    ) -> None:
        """Commit the end of a run with what follows from it; what it has cost counts for the task."""
        async with self._sessions.begin() as session:
            task, row = await lock_attempt(session, seen)
            noted = await TaskHistoryRepository(session).get_run(run.task_id, run.number)
            if noted.ended_at is None:
                await close_run(session, noted, ended)
            task.spent_usd += ended.result.cost_usd or 0
            row.spent_usd += ended.result.cost_usd or 0
            row.session_id = ended.result.session_id or row.session_id
            told = (
                f"Run {run.number} ({run.kind}) of attempt {row.number} has ended: {noted.outcome}."
            )
            await apply_attempt_move(
                session,
                task,
                row,
                AttemptMove(
                    state=move.state,
                    reason=move.reason,
                    values=move.values,
                    events=[tell_run(noted, told), *move.events],
                ),
            )
