from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Task, TaskAttempt
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.events import LoggedEvent
from sandbox_server.domain.tasks.stages import AttemptState, ChoiceBy, Stage
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.diffs import ChangedFile
from sandbox_server.jobs.kinds import TASK_ATTEMPT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.attempts.ranking import (
    choose,
    explain_choice,
    explain_refusal,
    explain_wish,
)
from sandbox_server.tasks.attempts.snapshots import AttemptSnapshots
from sandbox_server.tasks.attempts.transitions import AttemptMove, change_attempt
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.stages.budget import require_budget
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, Blocked, Step, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskChanged, TaskMove, apply_move, lock_seen

_LOOK_EVERY = timedelta(minutes=5)
_POLL = timedelta(seconds=1)
_CHOSEN = ("sandbox_id", "agent", "agent_command", "model", "head_sha", "report", "session_id")
"""Columns that the task copies from the chosen attempt."""


class AttemptChoice:
    """Working tasks: attempts begin from a snapshot, and one is chosen when all have finished.

    snapshot of the prepared sandbox -- sandbox deleted -- attempts finish, each by its own job -- choice -- as any task
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        sandboxes: TaskSandboxes,
        snapshots: AttemptSnapshots,
        saves: TaskSaves,
        repositories: TaskRepositories,
        agent_work: Step,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._saves = saves
        self._repositories = repositories
        self._agent_work = agent_work

    async def work(self, work: TaskWork) -> timedelta | None:
        """Begin the attempts, wait for them, and choose; the agent of other tasks works at once."""
        task = work.task
        if not task.attempts or task.chosen_attempt is not None:
            return await self._agent_work.work(work)
        if task.attempts_snapshot is None:
            return await self._begin(work)
        if task.sandbox_id is not None:
            return await self._release(work)
        async with without_transaction(self._sessions) as session:
            attempts = await TaskRepository(session).list_attempts(task.id)
        if not _can_choose(task, attempts):
            return _LOOK_EVERY
        if task.choice == ChoiceBy.OPERATOR and task.wanted_attempt is None:
            raise Blocked(
                WaitKind.CHOICE,
                f"All {len(attempts)} attempts have finished. Compare them and choose one.",
                actions=("choose", "cancel"),
            )
        await self._snapshots.delete(work)
        return await self._choose(work, attempts)

    async def _begin(self, work: TaskWork) -> timedelta:
        require_budget(work)
        snapshot_id = await self._snapshots.take(work)
        if snapshot_id is None:
            return _POLL
        async with self._sessions.begin() as session:
            row = await lock_seen(session, work.task)
            for attempt in await TaskRepository(session).list_attempts(row.id):
                await JobRepository(session).due(TASK_ATTEMPT, f"{row.id}/{attempt.number}")
            move = TaskMove(
                reason=f"{row.attempts} attempts begin from the prepared sandbox.",
                values={"attempts_snapshot": snapshot_id},
            )
            await apply_move(session, row, move)
        return AGAIN

    async def _release(self, work: TaskWork) -> timedelta:
        """Delete the prepared sandbox, which would occupy a place: the snapshot has all that it has."""
        if not await self._sandboxes.delete(work):
            return _POLL
        async with self._sessions.begin() as session:
            row = await lock_seen(session, work.task)
            await apply_move(session, row, TaskMove(values={"sandbox_id": None}))
        return AGAIN

    async def _choose(self, work: TaskWork, seen: Sequence[TaskAttempt]) -> timedelta:
        """Choose, and have the task go on with that attempt's sandbox; one transaction."""
        changes = await self._measure(work, seen)
        async with self._sessions.begin() as session:
            row = await lock_seen(session, work.task)
            attempts = await TaskRepository(session).list_attempts(row.id)
            if not _can_choose(row, attempts):
                raise TaskChanged(row.id)
            for attempt in attempts:
                _note_changes(attempt, changes[attempt.number])
            chosen = _find_wanted(row, attempts) or choose(attempts)
            others = [attempt for attempt in attempts if attempt is not chosen]
            await _tell_messages(session, chosen)
            is_wanted = row.wanted_attempt is not None
            events = await _settle(session, chosen, others, ended_at=work.now, is_wanted=is_wanted)
            for other in others:
                await JobRepository(session).due(TASK_ATTEMPT, f"{row.id}/{other.number}")
            await apply_move(session, row, await _move(session, chosen, events))
        return AGAIN

    async def _measure(
        self, work: TaskWork, attempts: Sequence[TaskAttempt]
    ) -> dict[int, Sequence[ChangedFile]]:
        """Measure the changes in the server's copy: what a sandbox says of itself is the agent's word."""
        async with self._repositories.open(work.repository, work.task.id) as repository:
            return {
                attempt.number: await self._changes(work.task, attempt, repository)
                for attempt in attempts
            }

    async def _changes(
        self, task: Task, attempt: TaskAttempt, repository: BareRepository
    ) -> Sequence[ChangedFile]:
        save = await self._saves.find_last(task.id, attempt=attempt.number)
        if save is None or task.base_sha is None:
            return ()
        await repository.import_bundle(await self._saves.read(save))
        return await repository.changed_files(task.base_sha, save.sha)


def _can_choose(task: Task, attempts: Sequence[TaskAttempt]) -> bool:
    wanted = _find_wanted(task, attempts)
    needed = attempts if wanted is None else [wanted]
    return all(attempt.state == AttemptState.FINISHED for attempt in needed)


def _find_wanted(task: Task, attempts: Sequence[TaskAttempt]) -> TaskAttempt | None:
    """Find the attempt that an operator has chosen."""
    return next((each for each in attempts if each.number == task.wanted_attempt), None)


def _note_changes(attempt: TaskAttempt, changes: Sequence[ChangedFile]) -> None:
    attempt.files = len(changes)
    attempt.added = sum(change.added for change in changes)
    attempt.removed = sum(change.removed for change in changes)


async def _tell_messages(session: AsyncSession, chosen: TaskAttempt) -> None:
    """Note that the task's agent was told what the chosen attempt was; it is told the rest next."""
    history = TaskHistoryRepository(session)
    for run in await history.list_runs_of_attempt(chosen.task_id, chosen.number):
        await history.mark_told(run.told, run.number)


async def _settle(
    session: AsyncSession,
    chosen: TaskAttempt,
    others: Sequence[TaskAttempt],
    *,
    ended_at: object,
    is_wanted: bool,
) -> Sequence[LoggedEvent]:
    move = AttemptMove(
        state=AttemptState.CHOSEN,
        reason=explain_wish(chosen) if is_wanted else explain_choice(chosen, others),
        values={"ended_at": ended_at},
    )
    events = [*await change_attempt(session, chosen, move)]
    for other in others:
        reason = explain_refusal(other, chosen, is_wanted=is_wanted)
        refused = AttemptMove(state=AttemptState.NOT_CHOSEN, reason=reason)
        events += await change_attempt(session, other, refused)
    return events


async def _move(
    session: AsyncSession, chosen: TaskAttempt, events: Sequence[LoggedEvent]
) -> TaskMove:
    """Go on as the agent's run would have: with a message, a question, or the checks."""
    has_untold = await TaskRepository(session).has_untold(chosen.task_id)
    stage, awaits = Stage.CHECKING, chosen.awaits
    if has_untold:
        stage, awaits = Stage.WORKING, None
    elif awaits is not None:
        stage = Stage.WAITING_FOR_USER
    reason = f"Attempt {chosen.number} goes on. {chosen.reason}"
    values = {name: getattr(chosen, name) for name in _CHOSEN}
    return TaskMove(
        stage=stage,
        reason=reason if awaits is None else awaits["text"],
        awaits=awaits,
        values={
            **values,
            "chosen_attempt": chosen.number,
            "sandbox_ready": True,
            "attempts_snapshot": None,
        },
        events=events,
    )
