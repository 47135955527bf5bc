from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import GitPush, Repository, Sandbox, Task, TaskAttempt
from sandbox_server.domain.tasks.pushes import PushState


class GitAccessRepository:
    """The rows that decide who may fetch and push what."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_at_backend(self, backend: str, backend_sandbox_id: str) -> Sandbox | None:
        """Find a living sandbox by its id at a provider."""
        return await self._session.scalar(
            select(Sandbox).where(
                Sandbox.backend == backend,
                Sandbox.backend_sandbox_id == backend_sandbox_id,
                Sandbox.ended_at.is_(None),
            )
        )

    async def find_living(self, sandbox_id: str) -> Sandbox | None:
        return await self._session.scalar(
            select(Sandbox).where(Sandbox.id == sandbox_id, Sandbox.ended_at.is_(None))
        )

    async def find_task(self, sandbox: Sandbox) -> Task | None:
        """Find the open task that a sandbox is for, itself or as one of its attempts."""
        of_attempt = select(TaskAttempt.task_id).where(TaskAttempt.sandbox_id == sandbox.id)
        return await self._session.scalar(
            select(Task).where(
                or_(Task.sandbox_id == sandbox.id, Task.id.in_(of_attempt)),
                Task.tenant_id == sandbox.tenant_id,
                Task.ended_at.is_(None),
            )
        )

    async def find_repository(self, repository_id: str, *, tenant_id: str) -> Repository | None:
        return await self._session.scalar(
            select(Repository).where(
                Repository.id == repository_id,
                Repository.tenant_id == tenant_id,
                Repository.removed_at.is_(None),
            )
        )

    async def list_readable(
        self, repository: Repository, names: Sequence[str]
    ) -> Sequence[Repository]:
        """List the repositories of the same tenant and forge with these names."""
        found = await self._session.scalars(
            select(Repository).where(
                Repository.tenant_id == repository.tenant_id,
                Repository.forge_id == repository.forge_id,
                Repository.removed_at.is_(None),
                func.lower(Repository.full_name).in_([name.lower() for name in names]),
            )
        )
        return found.all()

    async def is_own_push(
        self, repository_id: str, branch: str, sha: str, *, sandbox_id: str, task_id: str | None
    ) -> bool:
        """Return whether this sandbox, or its task, has pushed this commit to the branch."""
        own = GitPush.sandbox_id == sandbox_id
        if task_id is not None:
            own |= GitPush.task_id == task_id
        found = await self._session.scalar(
            select(GitPush.id)
            .where(
                GitPush.repository_id == repository_id,
                GitPush.branch == branch,
                GitPush.new_sha == sha,
                GitPush.state == PushState.PUSHED,
                own,
            )
            .limit(1)
        )
        return found is not None
