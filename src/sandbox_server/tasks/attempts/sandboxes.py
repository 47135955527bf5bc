from dataclasses import replace
from datetime import timedelta

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Sandbox, TaskAttempt, TaskRun
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import InvalidTransition, StartFailed
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import ENDED, State
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tasks.attempts.transitions import AttemptMove, AttemptTransitions
from sandbox_server.tasks.attempts.work import AttemptWork
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.stages.runs import end_processes
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import Blocked, WaitKind

_WAIT = timedelta(seconds=15)
_MOST_STARTS = 3


class AttemptSandboxes:
    """The sandboxes of attempts, created from the snapshot of the prepared sandbox."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        sandboxes: TaskSandboxes,
        saves: TaskSaves,
        transitions: AttemptTransitions,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._sandboxes = sandboxes
        self._saves = saves
        self._transitions = transitions

    async def create(self, work: AttemptWork) -> None:
        """Create the next sandbox of an attempt, or find the one that a crash has left without a note."""
        attempt = work.attempt
        number = attempt.sandboxes + 1
        try:
            row = await self._controller.create(
                work.caller, self._request(work), idempotency=_once(attempt), wait=_WAIT
            )
        except (StartFailed, InvalidTransition) as error:
            await self._transitions.commit(attempt, AttemptMove(values={"sandboxes": number}))
            if number < _MOST_STARTS:
                return
            raise Blocked(WaitKind.SANDBOX, f"The sandbox did not start: {error}") from None
        values = {"sandbox_id": row.id, "sandboxes": number, "sandbox_ready": False}
        await self._transitions.commit(attempt, AttemptMove(values=values))

    async def restore(self, work: AttemptWork) -> None:
        """Put the saved work into a sandbox that replaces a lost one."""
        used = await self._sandboxes.use(work)
        last = await self._saves.find_last(work.task.id, attempt=work.attempt_number)
        if last is not None:
            await self._saves.restore(work.task, used, last)

    async def save(self, work: AttemptWork, run: TaskRun | None = None) -> None:
        """Save what a running sandbox has once the run has ended; a paused one was saved when it was paused."""
        row = await self._sandboxes.find(work)
        if row is not None and row.state is State.RUNNING and work.attempt.sandbox_ready:
            used = await self._controller.look_into(work.caller, row.id)
            if run is not None:
                await end_processes(used, run)
            await self._saves.take(
                work.task, used, cause="attempt ended", attempt=work.attempt_number
            )

    async def delete(self, work: AttemptWork) -> bool:
        """Delete the sandbox, also one that a crash has left without a note; returns whether it is gone."""
        row = await self._sandboxes.find(work) or await self._find_unnoted(work)
        if row is None or row.state in ENDED:
            return True
        row = await self._controller.delete(work.caller, row.id, wait=_WAIT)
        return row.state in ENDED

    async def _find_unnoted(self, work: AttemptWork) -> Sandbox | None:
        async with without_transaction(self._sessions) as session:
            found = await IdempotencyRepository(session).find(
                work.task.tenant_id, _once(work.attempt)
            )
        return None if found is None else await self._controller.get(work.caller, found)

    def _request(self, work: AttemptWork) -> SandboxRequest:
        request = self._sandboxes.request(work)
        return replace(
            request,
            template=work.task.attempts_snapshot,
            prepared=None,
            metadata={**request.metadata, "attempt": str(work.attempt_number)},
        )


def _once(attempt: TaskAttempt) -> Idempotency:
    number = attempt.sandboxes + 1
    key = f"task/{attempt.task_id}/attempt/{attempt.number}/sandbox/{number}"
    return Idempotency.of(key, method="CREATE", path=attempt.task_id, body=number)
