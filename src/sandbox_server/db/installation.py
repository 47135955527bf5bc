from collections.abc import Collection

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Installation, Job, Sandbox, Snapshot
from sandbox_server.domain.ids import InstallationId, new_id
from sandbox_server.domain.state import State, Target

_DETACHED = "Detached: belongs to the installation that this database was copied from."
_ENGINE_LOST = "Its engine was lost."


class InstallationRepository:
    """Identity of the installation, and its current encryption key."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_or_make(self) -> Installation:
        """Return the only row; created by one of several concurrent starts."""
        made = insert(Installation).values(id=InstallationId(new_id()))
        await self._session.execute(made.on_conflict_do_nothing())
        return (await self._session.scalars(select(Installation))).one()

    async def set_first_key(self, key_id: str) -> None:
        """Record the current encryption key, unless there is one."""
        await self._session.execute(
            update(Installation)
            .where(Installation.encryption_key_id.is_(None))
            .values(encryption_key_id=key_id)
        )

    async def set_key(self, key_id: str) -> None:
        await self._session.execute(update(Installation).values(encryption_key_id=key_id))

    async def renew(self, *, job_kinds: Collection[str]) -> int:
        """Turn a copied database into a separate installation; return the number of detached sandboxes.

        They belong to the original, so this installation must not find, change or delete them.
        """
        await self._session.execute(update(Installation).values(id=InstallationId(new_id())))
        await self._session.execute(
            update(Snapshot).values(
                state="failed", state_reason=_DETACHED, backend_snapshot_id=None
            )
        )
        await self._session.execute(delete(Job).where(Job.kind.in_(job_kinds)))
        return await self._detach(Sandbox.ended_at.is_(None), reason=_DETACHED)

    async def take_engine(self, engine: str, *, backend: str) -> bool:
        """Record the backend's engine; return False if its sandboxes belong to another engine."""
        elsewhere = self._living_at(backend).exists()
        taken = (
            update(Installation)
            .where(or_(Installation.engine.is_(None), Installation.engine == engine, ~elsewhere))
            .values(engine=engine)
        )
        return bool((await self._session.execute(taken.returning(Installation.id))).all())

    async def forget_engine(self, *, backend: str) -> int:
        """Mark the sandboxes of a lost engine as failed; return their number."""
        await self._session.execute(update(Installation).values(engine=None))
        return await self._detach(Sandbox.id.in_(self._living_at(backend)), reason=_ENGINE_LOST)

    def _living_at(self, backend: str) -> Select[str]:
        return select(Sandbox.id).where(Sandbox.backend == backend, Sandbox.ended_at.is_(None))

    async def _detach(self, which: ColumnElement[bool], *, reason: str) -> int:
        left = await self._session.execute(
            update(Sandbox)
            .where(which)
            .values(
                state=State.FAILED,
                state_reason=reason,
                target=Target.GONE,
                generation=Sandbox.generation + 1,
                ended_at=func.clock_timestamp(),
                backend_sandbox_id=None,
                access_sealed=None,
                envs_sealed=None,
                expires_at=None,
            )
            .returning(Sandbox.id)
        )
        return len(left.all())
