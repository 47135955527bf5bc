from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.domain.errors import SnapshotNotFound


class SnapshotRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: Snapshot) -> None:
        self._session.add(row)
        await self._session.flush()

    async def get(self, snapshot_id: str, *, tenant_id: str) -> Snapshot:
        row = await self._session.scalar(
            select(Snapshot).where(Snapshot.id == snapshot_id, Snapshot.tenant_id == tenant_id)
        )
        if row is None:
            raise SnapshotNotFound(snapshot_id)
        return row

    async def lock(self, snapshot_id: str, *, tenant_id: str | None = None) -> Snapshot:
        """Hold the row until the transaction ends."""
        locked = select(Snapshot).where(Snapshot.id == snapshot_id).with_for_update()
        if tenant_id is not None:
            locked = locked.where(Snapshot.tenant_id == tenant_id)
        row = await self._session.scalar(locked.execution_options(populate_existing=True))
        if row is None:
            raise SnapshotNotFound(snapshot_id)
        return row

    async def find(self, snapshot_id: str) -> Snapshot | None:
        """Find a snapshot whoever's it is."""
        return await self._session.get(Snapshot, snapshot_id)

    async def find_by_template(self, template: str) -> Snapshot | None:
        """Find the snapshot that a provider would take this template for, whoever's it is."""
        return await self._session.scalar(
            select(Snapshot).where(
                or_(Snapshot.id == template, Snapshot.backend_snapshot_id == template)
            )
        )

    async def list_page(
        self,
        tenant_id: str,
        *,
        sandbox_id: str | None = None,
        limit: int,
        before: str | None = None,
    ) -> Sequence[Snapshot]:
        """List newest first what somebody asked for; what a fork stands on for now is left out."""
        query = select(Snapshot).where(
            Snapshot.tenant_id == tenant_id,
            Snapshot.temporary.is_(False),
            Snapshot.state != "deleting",
        )
        if sandbox_id is not None:
            query = query.where(Snapshot.sandbox_id == sandbox_id)
        if before is not None:
            query = query.where(Snapshot.id < before)
        return (await self._session.scalars(query.order_by(Snapshot.id.desc()).limit(limit))).all()

    async def list_standing(self, snapshot: Snapshot) -> Sequence[str]:
        """List the sandboxes made from the snapshot that have not ended."""
        standing = await self._session.scalars(
            select(Sandbox.id).where(
                Sandbox.tenant_id == snapshot.tenant_id,
                Sandbox.ended_at.is_(None),
                Sandbox.template == snapshot.id,
            )
        )
        return standing.all()
