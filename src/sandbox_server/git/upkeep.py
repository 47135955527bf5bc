from datetime import datetime

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import RemoteRefused, RepositoryNotFound
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential
from sandbox_server.forges.service import Forges
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import Repositories


class ForgeCredentials:
    """Mints credentials for git, as mirrors need them."""

    def __init__(self, forges: Forges) -> None:
        self._forges = forges

    async def mint(self, repository: Repository, access: GitAccess) -> GitCredential:
        adapter = await self._forges.adapter(repository.forge_id)
        return await adapter.git_credential(facts_of(repository), access)


class MirrorJob:
    """Fetches mirrors on request: a push at the forge, or `prepare`. One server at a time fetches one repository."""

    def __init__(self, repositories: Repositories, mirrors: Mirrors) -> None:
        self._repositories = repositories
        self._mirrors = mirrors

    async def work(self, job: LeasedJob) -> datetime | None:
        """Fetch a repository's mirror on this server; the mirror of a removed one goes."""
        row = await self._find(job.subject)
        if row is None:
            await self._mirrors.remove(job.subject)
            return None
        try:
            await self._mirrors.fetch(row)
        except RemoteRefused:
            # It may have been renamed: git does not follow redirections, the forge's API does.
            await self._mirrors.fetch(await self._repositories.refresh(row.id))
        return None

    async def _find(self, repository_id: str) -> Repository | None:
        try:
            row = await self._repositories.row(repository_id)
        except RepositoryNotFound:
            return None
        return None if row.removed_at is not None else row
