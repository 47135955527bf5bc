import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository, Task, TaskLargeFilePart, TaskSave
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import SaveFailed
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.forge import ForgeLargeFiles
from sandbox_server.git.lfs.inside import FindKept, Kept, LargeFilesInside
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.git.work import TakenWork
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tasks.large_files.repository import LargeFileRepository
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_PART = 2**20


class TaskLargeFiles:
    """Keeps the contents of Git LFS that only the sandbox of a task has, each of them once."""

    def __init__(
        self,
        sessions: Sessions,
        vault: Vault,
        forge: ForgeLargeFiles,
        fetcher: LargeFileFetcher,
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._forge = forge
        self._fetcher = fetcher

    def finder(self, task: Task) -> FindKept:
        """Return what finds the contents that need not be taken out of the sandbox again."""

        async def find_kept(objects: Sequence[LfsObject]) -> Kept:
            async with without_transaction(self._sessions) as session:
                here = await _find_stored(session, task.id, objects)
                repository = await session.get_one(Repository, task.repository_id)
            others = [each for each in objects if each.oid not in here]
            at_forge = await self._forge.find_there(repository, others) if others else ()
            return Kept(here=here, at_forge=at_forge)

        return find_kept

    async def seal(self, taken: TakenWork, task_id: str) -> Sequence[TaskLargeFilePart]:
        """Encrypt the contents that a save has taken."""
        return await asyncio.to_thread(self._seal, task_id, taken.contents)

    async def store(
        self,
        session: AsyncSession,
        task_id: str,
        taken: TakenWork,
        parts: Sequence[TaskLargeFilePart],
    ) -> None:
        """Add what is not stored yet, in the transaction of the save, which has locked the task."""
        stored = await _find_stored(session, task_id, taken.large)
        if {each.oid for each in taken.large} - stored - {part.oid for part in parts}:
            raise SaveFailed("a large file was removed with an older save meanwhile; save again")
        new = [part for part in parts if part.oid not in stored]
        await LargeFileRepository(session).add(new)

    async def fetch(self, task: Task, used: UsableSandbox, save: TaskSave) -> None:
        """Bring what the commits of a restored save point to and only the forge has, as far as that is possible."""
        async with without_transaction(self._sessions) as session:
            repository = await session.get_one(Repository, task.repository_id)
        inside = LargeFilesInside(used, task.directory)
        wanted = await inside.list_new(save.sha, save.base_sha)
        reason = await self._fetcher.fetch(inside, repository, wanted) if wanted else None
        if reason is not None:
            log.warning("large files not restored task_id=%s reason=%s", task.id, reason)

    async def publish(
        self, task: Task, credential: GitCredential, objects: Sequence[LfsObject]
    ) -> Sequence[LfsObject]:
        """Send what the forge lacks of these; returns what no save of the task has."""
        return await self._forge.send_missing(
            credential, objects, lambda oid: self.open(task.id, oid)
        )

    async def open(self, task_id: str, oid: str) -> AsyncGenerator[bytes, None] | None:
        """Open a stored content, to be read in parts; None if it is not stored."""
        async with without_transaction(self._sessions) as session:
            ids = await LargeFileRepository(session).list_part_ids(task_id, oid)
        return self._read(ids) if ids else None

    async def read(self, task_id: str, oid: str) -> bytes | None:
        parts = await self.open(task_id, oid)
        return None if parts is None else b"".join([part async for part in parts])

    async def _read(self, part_ids: Sequence[str]) -> AsyncGenerator[bytes, None]:
        for part_id in part_ids:
            async with without_transaction(self._sessions) as session:
                part = await LargeFileRepository(session).get_part(part_id)
            yield self._vault.decrypt(part.content_sealed, context=_context(part_id))

    def _seal(self, task_id: str, contents: Mapping[str, bytes]) -> Sequence[TaskLargeFilePart]:
        return [
            self._part(task_id, oid, number, content[start : start + _PART])
            for oid, content in contents.items()
            for number, start in enumerate(range(0, max(len(content), 1), _PART))
        ]

    def _part(self, task_id: str, oid: str, number: int, content: bytes) -> TaskLargeFilePart:
        part_id = new_id()
        sealed = self._vault.encrypt(content, context=_context(part_id))
        return TaskLargeFilePart(
            id=part_id, task_id=task_id, oid=oid, part=number, content_sealed=sealed
        )


async def _find_stored(
    session: AsyncSession, task_id: str, objects: Sequence[LfsObject]
) -> set[str]:
    return await LargeFileRepository(session).find_stored(task_id, [each.oid for each in objects])


def _context(part_id: str) -> str:
    return f"task_large_file_parts.content/{part_id}"
