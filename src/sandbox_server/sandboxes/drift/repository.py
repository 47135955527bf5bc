from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Row, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Job, Sandbox, Tenant
from sandbox_server.domain.state import State
from sandbox_server.jobs.statements import DUE


class DriftRepository:
    """Queries for the comparison with providers."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_living(self, backend: str) -> Sequence[Row[str, State, int, str | None]]:
        """List the sandboxes of a backend that have not ended."""
        living = await self._session.execute(
            select(Sandbox.id, Sandbox.state, Sandbox.generation, Sandbox.backend_sandbox_id)
            .where(Sandbox.backend == backend, Sandbox.ended_at.is_(None))
            .order_by(Sandbox.id)
        )
        return living.all()

    async def list_running(self, backend: str) -> Sequence[Row[str, int, bytes | None, bool]]:
        """List the running sandboxes of a backend; silent ones come last."""
        is_silent = Sandbox.silent_since.is_not(None)
        running = await self._session.execute(
            select(Sandbox.id, Sandbox.generation, Sandbox.access_sealed, is_silent)
            .where(
                Sandbox.backend == backend,
                Sandbox.state == State.RUNNING,
                Sandbox.ended_at.is_(None),
            )
            .order_by(is_silent, Sandbox.id)
        )
        return running.all()

    async def find_all(self, sandbox_ids: Collection[str]) -> Mapping[str, Sandbox]:
        rows = await self._session.scalars(select(Sandbox).where(Sandbox.id.in_(sandbox_ids)))
        return {row.id: row for row in rows}

    async def find_tenants(self, tenant_ids: Collection[str]) -> Mapping[str, Tenant]:
        rows = await self._session.scalars(select(Tenant).where(Tenant.id.in_(tenant_ids)))
        return {row.id: row for row in rows}

    async def adopt(self, row: Sandbox) -> bool:
        """Insert the row; False if it exists by now."""
        values = {
            column.key: getattr(row, column.key)
            for column in Sandbox.__mapper__.column_attrs
            if column.key in row.__dict__
        }
        adopted = insert(Sandbox).values(values).on_conflict_do_nothing()
        return await self._session.scalar(adopted.returning(Sandbox.id)) is not None

    async def revive_jobs(self, backend: str, *, kinds: Sequence[str]) -> None:
        """Retry at once the jobs that failed while the backend was down, with the attempts of new ones.

        Locked rows are skipped: their holder sets when they are due.
        """
        failed = or_(Job.dead_at.is_not(None), Job.attempts > 0)
        there = select(Sandbox.id).where(Sandbox.backend == backend)
        held = (
            select(Job.id)
            .where(Job.kind.in_(kinds), Job.subject.in_(there), failed, Job.leased_by.is_(None))
            .with_for_update(skip_locked=True)
        )
        now = func.statement_timestamp()
        await self._session.execute(
            update(Job)
            .where(Job.id.in_(held))
            .values(run_at=now, attempts=0, dead_at=None)
            .execution_options(synchronize_session=False)
        )
        await self._session.execute(select(func.pg_notify(DUE, "")))
