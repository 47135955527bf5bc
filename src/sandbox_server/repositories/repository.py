from collections.abc import Sequence

from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, Repository, Task
from sandbox_server.domain.errors import RepositoryNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.repositories.facts import columns_of

_present = Repository.removed_at.is_(None)


class RepositoryRows:
    """The SQL of repositories."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, repository_id: str, *, tenant_id: str) -> Repository:
        found = _of(tenant_id).where(Repository.id == repository_id)
        return self._require(await self._session.scalar(found), repository_id)

    async def lock(self, repository_id: str, *, tenant_id: str) -> Repository:
        """Hold the row until the transaction ends."""
        found = _of(tenant_id).where(Repository.id == repository_id).with_for_update()
        row = await self._session.scalar(found.execution_options(populate_existing=True))
        return self._require(row, repository_id)

    async def find(self, repository_id: str) -> Repository | None:
        """Find a repository of any tenant, removed or not."""
        return await self._session.get(Repository, repository_id)

    async def list_by_name(
        self, tenant_id: str, full_name: str, *, forge: str | None = None
    ) -> Sequence[Repository]:
        """List the repositories of this name at any forge, or at one; forges ignore case."""
        found = _of(tenant_id).where(func.lower(Repository.full_name) == full_name.lower())
        if forge is not None:
            found = found.join(Forge, Forge.id == Repository.forge_id).where(Forge.name == forge)
        return (await self._session.scalars(found.order_by(Repository.id))).all()

    async def list_page(
        self, tenant_id: str, *, full_name: str | None, limit: int, before: str | None
    ) -> Sequence[Repository]:
        """List repositories, newest first."""
        query = _of(tenant_id)
        if full_name is not None:
            query = query.where(func.lower(Repository.full_name) == full_name.lower())
        if before is not None:
            query = query.where(Repository.id < before)
        found = await self._session.scalars(query.order_by(Repository.id.desc()).limit(limit))
        return found.all()

    async def names_of_forges(self, rows: Sequence[Repository]) -> dict[str, str]:
        ids = {row.forge_id for row in rows}
        found = await self._session.execute(select(Forge.id, Forge.name).where(Forge.id.in_(ids)))
        return {row.id: row.name for row in found}

    async def count_open_tasks(self, repository_id: str) -> int:
        counted = select(func.count()).where(
            Task.repository_id == repository_id, Task.ended_at.is_(None)
        )
        return await self._session.scalar(counted) or 0

    async def find_or_add(self, forge: Forge, facts: RepositoryFacts) -> Repository:
        """Lock the row of this repository; a new one is added as a removed one."""
        added = insert(Repository).values(
            id=new_id(),
            tenant_id=forge.tenant_id,
            forge_id=forge.id,
            external_id=facts.external_id,
            removed_at=func.now(),
            **columns_of(facts),
        )
        await self._session.execute(added.on_conflict_do_nothing())
        locked = _known_as(forge.id, facts.external_id).with_for_update()
        found = await self._session.scalar(locked)
        assert found is not None
        return found

    async def mark_removed(self, row: Repository) -> None:
        row.removed_at = await self._session.scalar(select(func.clock_timestamp()))

    @staticmethod
    def _require(row: Repository | None, repository_id: str) -> Repository:
        if row is None:
            raise RepositoryNotFound(repository_id)
        return row


def _known_as(forge_id: str, external_id: str) -> Select[Repository]:
    return select(Repository).where(
        Repository.forge_id == forge_id, Repository.external_id == external_id
    )


def _of(tenant_id: str) -> Select[Repository]:
    return select(Repository).where(Repository.tenant_id == tenant_id, _present)
