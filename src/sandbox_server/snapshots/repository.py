from collections.abc import Sequence

from sqlalchemy import Select, and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.domain.errors import SnapshotNotFound
from sandbox_server.domain.state import State

_waits_for_snapshot = and_(Sandbox.state == State.QUEUED, Sandbox.candidates == [])


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
        """Find a snapshot of any tenant."""
        return await self._session.get(Snapshot, snapshot_id)

    async def list_page(
        self,
        tenant_id: str,
        *,
        sandbox_id: str | None = None,
        limit: int,
        before: str | None = None,
    ) -> Sequence[Snapshot]:
        """List snapshots, newest first, without the temporary ones of forks."""
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

    async def is_needed(self, snapshot: Snapshot) -> bool:
        """Whether any sandbox created from it has not ended."""
        created = _created_from(snapshot).where(Sandbox.ended_at.is_(None))
        return (
            await self._session.scalar(created.with_only_columns(Sandbox.id).limit(1)) is not None
        )

    async def list_waiting_forks(self, snapshot: Snapshot) -> Sequence[Sandbox]:
        """List the forks that wait for the snapshot."""
        waiting = _created_from(snapshot).where(_waits_for_snapshot)
        return (await self._session.scalars(waiting.order_by(Sandbox.id))).all()

    async def queue_forks(self, snapshot: Snapshot) -> bool:
        """Queue the waiting forks at the snapshot's backend; returns whether there are any."""
        forks = update(Sandbox).where(
            Sandbox.tenant_id == snapshot.tenant_id,
            Sandbox.template == snapshot.id,
            _waits_for_snapshot,
        )
        let_in = await self._session.scalars(
            forks.values(candidates=[snapshot.backend]).returning(Sandbox.id)
        )
        return bool(let_in.all())

    async def remove(self, snapshot_id: str) -> None:
        await self._session.execute(delete(Snapshot).where(Snapshot.id == snapshot_id))


def _created_from(snapshot: Snapshot) -> Select[Sandbox]:
    return select(Sandbox).where(
        Sandbox.tenant_id == snapshot.tenant_id, Sandbox.template == snapshot.id
    )
