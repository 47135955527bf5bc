from contextlib import suppress
from datetime import timedelta

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import SnapshotFailed, SnapshotNotFound
from sandbox_server.domain.requests import Idempotency
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions

_WAIT = timedelta(seconds=15)
_READY = "ready"


class AttemptSnapshots:
    """The snapshot of a prepared sandbox that the attempts of a task start from."""

    def __init__(
        self,
        sessions: Sessions,
        sandboxes: TaskSandboxes,
        snapshots: SnapshotService,
        transitions: TaskTransitions,
    ) -> None:
        self._sessions = sessions
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._transitions = transitions

    async def take(self, work: TaskWork) -> str | None:
        """Take the snapshot, or find it; returns its id once it is ready."""
        used = await self._sandboxes.use(work)
        once = _once(work.task)
        try:
            row = await self._snapshots.create(
                work.caller, used.row.id, idempotency=once, wait=_WAIT
            )
        except SnapshotFailed as error:
            # The next one needs a key of its own.
            values = {"sandboxes": work.task.sandboxes + 1}
            await self._transitions.commit(work.task, TaskMove(values=values))
            text = f"The prepared sandbox could not be copied for the attempts: {error}"
            raise Blocked(WaitKind.SANDBOX, text) from None
        return row.id if row.state == _READY else None

    async def delete(self, work: TaskWork) -> None:
        """Delete the snapshot, also one that a crash has left without a note; its sandboxes stay."""
        found = work.task.attempts_snapshot or await self._find_unnoted(work)
        if found is not None:
            with suppress(SnapshotNotFound):
                await self._snapshots.delete(work.caller, found)

    async def _find_unnoted(self, work: TaskWork) -> str | None:
        async with without_transaction(self._sessions) as session:
            return await IdempotencyRepository(session).find(work.task.tenant_id, _once(work.task))


def _once(task: Task) -> Idempotency:
    key = f"task/{task.id}/attempts/{task.sandboxes}"
    return Idempotency.of(key, method="SNAPSHOT", path=task.id, body=task.sandboxes)
