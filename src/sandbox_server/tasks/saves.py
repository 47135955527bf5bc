import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sandbox_server.db.models import Task, TaskSave, TaskSavePart
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.events import TaskSaved
from sandbox_server.git.work import SandboxWork, TakenWork
from sandbox_server.log.events import EventRepository
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tasks.large_files.service import TaskLargeFiles
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.save_repository import TaskSaveRepository
from sandbox_server.vault import Vault

SAVE_TIMEOUT = timedelta(minutes=5)

_PART = 2**20
_KEPT = 20


class TaskSaves:
    """Takes the work of tasks out of their sandboxes, keeps it, and puts it back."""

    def __init__(
        self, sessions: Sessions, vault: Vault, work: SandboxWork, large_files: TaskLargeFiles
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._work = work
        self.large_files = large_files

    async def take(
        self, task: Task, used: UsableSandbox, *, cause: str, attempt: int = 0
    ) -> TaskSave:
        """Save the work as it is; returns the last save if nothing has changed since."""
        assert task.base_sha is not None
        last = await self.find_last(task.id, attempt=attempt)
        known = None if last is None else last.mark
        async with asyncio.timeout(SAVE_TIMEOUT.total_seconds()):
            taken = await self._work.take(
                used,
                task.directory,
                task.base_sha,
                known,
                find_kept=self.large_files.finder(task),
            )
        if taken is None:
            assert last is not None
            return last
        return await self._store(task.id, taken, cause, attempt)

    async def find_last(self, task_id: str, *, attempt: int = 0) -> TaskSave | None:
        """Find the last save of the task itself, or of one of its attempts."""
        async with without_transaction(self._sessions) as session:
            return await TaskSaveRepository(session).find_last(task_id, attempt=attempt)

    async def get(self, task_id: str, number: int) -> TaskSave:
        async with without_transaction(self._sessions) as session:
            return await TaskSaveRepository(session).get(task_id, number)

    async def read(self, save: TaskSave) -> bytes:
        """Decrypt the bundle of a save."""
        async with without_transaction(self._sessions) as session:
            parts = await TaskSaveRepository(session).list_parts(save.task_id, save.number)
        return await asyncio.to_thread(self._open, parts)

    async def restore(self, task: Task, used: UsableSandbox, save: TaskSave) -> None:
        """Put saved work into a fresh checkout of its base."""
        for oid in save.large_files:
            content = await self.large_files.read(task.id, oid)
            if content is not None:
                await self._work.restore_large_file(used, task.directory, oid, content)
        await self._work.restore(used, task.directory, await self.read(save))
        await self.large_files.fetch(task, used, save)

    async def _store(self, task_id: str, taken: TakenWork, cause: str, attempt: int) -> TaskSave:
        sealed = await asyncio.to_thread(self._seal, taken.bundle)
        large = await self.large_files.seal(taken, task_id)
        async with self._sessions.begin() as session:
            task = await TaskRepository(session).lock(task_id)
            saves = TaskSaveRepository(session)
            last = await saves.find_last(task_id, attempt=attempt)
            if last is not None and last.mark == taken.mark:  # another worker has just saved it
                return last
            row = _row(task_id, await saves.next_number(task_id), taken, cause)
            row.attempt = attempt
            row.run_number = await saves.find_current_run(task_id, attempt=attempt)
            parts = [
                TaskSavePart(
                    id=part_id, task_id=task_id, number=row.number, part=part, content_sealed=each
                )
                for part, (part_id, each) in enumerate(sealed)
            ]
            await self.large_files.store(session, task_id, taken, large)
            await saves.add(row, parts)
            await saves.remove_old(task_id, keep=_KEPT)
            await EventRepository(session).append(task.tenant_id, _event(row, cause))
        return row

    def _seal(self, bundle: bytes) -> Sequence[tuple[str, bytes]]:
        ids = [new_id() for _ in range(0, len(bundle), _PART)]
        return [
            (
                part_id,
                self._vault.encrypt(bundle[_PART * n : _PART * (n + 1)], context=_context(part_id)),
            )
            for n, part_id in enumerate(ids)
        ]

    def _open(self, parts: Sequence[TaskSavePart]) -> bytes:
        return b"".join(
            self._vault.decrypt(part.content_sealed, context=_context(part.id)) for part in parts
        )


_REASONS = {
    "request": "Saved by API request.",
    "interval": "Saved during a run.",
    "publishing": "Saved before publishing.",
    "end": "Saved at the end of the task.",
    "kill": "Saved before the sandbox is deleted.",
    "pause": "Saved before the sandbox is paused.",
}


def _context(part_id: str) -> str:
    return f"task_save_parts.content/{part_id}"


def _row(task_id: str, number: int, taken: TakenWork, cause: str) -> TaskSave:
    return TaskSave(
        task_id=task_id,
        number=number,
        kind=taken.kind,
        cause=cause,
        sha=taken.sha,
        head_sha=taken.head_sha,
        branch=taken.branch,
        tree=taken.tree,
        mark=taken.mark,
        base_sha=taken.base_sha,
        files=taken.files,
        size=taken.size,
        left_out=list(taken.left_out),
        large_files=[each.oid for each in taken.large],
    )


def _event(row: TaskSave, cause: str) -> TaskSaved:
    return TaskSaved(
        task_id=row.task_id,
        cause=Cause.TASK,
        actor=SERVER,
        reason=_REASONS.get(cause, f"Saved ({cause})."),
        number=row.number,
        sha=row.sha,
        size=row.size,
        files=row.files,
        attempt=row.attempt or None,
    )
