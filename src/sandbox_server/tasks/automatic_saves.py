import logging
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox, Task, TaskRun
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
        """Save the work of each run of a task that has not ended; returns when to save again."""
        async with without_transaction(self._sessions) as session:
            found = await TaskRepository(session).find(job.subject)
            runs = await TaskSaveRepository(session).list_open_runs(job.subject)
        if found is None or not runs:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(TASK_SAVE, job.subject)
            return None
        task, now = found
        for run in runs:
            await self._save(task, run)
        return now + self._every

    async def _save(self, task: Task, run: TaskRun) -> None:
        caller = ServerCaller.of(task.tenant_id)
        try:
            # A paused sandbox was saved before its pause, and stays paused.
            used = await self._controller.look_into(caller, run.sandbox_id)
            await self._saves.take(task, used, cause="interval", attempt=run.attempt)
        except (SandboxError, TimeoutError) as error:
            log.warning("work not saved task_id=%s error=%s", task.id, error)


class TaskWorkKeeper:
    """Saves the work of a task before its sandbox is paused or deleted, for whatever reason."""

    def __init__(self, sessions: Sessions, access: SandboxAccess, saves: TaskSaves) -> None:
        self._sessions = sessions
        self._access = access
        self._saves = saves

    async def save_before(self, row: Sandbox, act: str) -> None:
        """Save the work in a running sandbox; sandboxes without an open task cost two queries."""
        async with without_transaction(self._sessions) as session:
            task, attempt = await _find_task(TaskRepository(session), row.id)
        if task is None or task.base_sha is None or row.access_sealed is None:
            return
        await self._saves.take(task, self._access.usable(row), cause=act, attempt=attempt)


async def _find_task(tasks: TaskRepository, sandbox_id: str) -> tuple[Task | None, int]:
    """Find the open task that works in a sandbox, itself (0) or in one of its attempts."""
    task = await tasks.find_of_sandbox(sandbox_id)
    if task is not None:
        return task, 0
    return await tasks.find_attempt_of_sandbox(sandbox_id) or (None, 0)
