import logging
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox, Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import ServerCaller
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import TASK_SAVE
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.save_repository import TaskSaveRepository
from sandbox_server.tasks.saves import TaskSaves

log = logging.getLogger(__name__)


class IntervalSaves:
    """Saves the work again and again while a run writes."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        saves: TaskSaves,
        *,
        every: timedelta,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._saves = saves
        self._every = every

    async def work(self, job: LeasedJob) -> datetime | None:
        """Save the work of a task whose run has not ended; returns when to save again."""
        async with without_transaction(self._sessions) as session:
            found = await TaskRepository(session).find(job.subject)
            run = await TaskSaveRepository(session).find_open_run(job.subject)
        if found is None or run is None or found[0].sandbox_id is None:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(TASK_SAVE, job.subject)
            return None
        task, now = found
        await self._save(task)
        return now + self._every

    async def _save(self, task: Task) -> None:
        assert task.sandbox_id is not None
        caller = ServerCaller.of(task.tenant_id)
        try:
            # A paused sandbox was saved before its pause, and stays paused.
            used = await self._controller.look_into(caller, task.sandbox_id)
            await self._saves.take(task, used, cause="interval")
        except (SandboxError, TimeoutError) as error:
            log.warning("work not saved task_id=%s error=%s", task.id, error)


class TaskWorkKeeper:
    """Saves the work of a task before its sandbox is paused or deleted, for whatever reason."""

    def __init__(self, sessions: Sessions, access: SandboxAccess, saves: TaskSaves) -> None:
        self._sessions = sessions
        self._access = access
        self._saves = saves

    async def save_before(self, row: Sandbox, act: str) -> None:
        """Save the work in a running sandbox; sandboxes without an open task cost one query."""
        async with without_transaction(self._sessions) as session:
            task = await TaskRepository(session).find_of_sandbox(row.id)
        if task is None or task.base_sha is None or row.access_sealed is None:
            return
        await self._saves.take(task, self._access.usable(row), cause=act)
