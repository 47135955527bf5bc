from collections.abc import Collection

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Installation, Job, Sandbox, Snapshot
from sandbox_server.domain.ids import InstallationId, new_id
from sandbox_server.domain.state import State, Target

_LET_GO = "It belongs to the installation that this database is a copy of."


class InstallationRepository:
    """Who this database belongs to, and which key seals what is in it."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_or_make(self) -> Installation:
        """Give the one row; of several servers that start at once, one makes it."""
        made = insert(Installation).values(id=InstallationId(new_id()))
        await self._session.execute(made.on_conflict_do_nothing())
        return (await self._session.scalars(select(Installation))).one()

    async def set_first_key(self, key_id: str) -> None:
        """Note the key that seals from now on, unless there is one."""
        await self._session.execute(
            update(Installation)
            .where(Installation.encryption_key_id.is_(None))
            .values(encryption_key_id=key_id)
        )

    async def set_key(self, key_id: str) -> None:
        await self._session.execute(update(Installation).values(encryption_key_id=key_id))

    async def renew(self, *, job_kinds: Collection[str]) -> int:
        """Make a copied database another installation; gives how many sandboxes it lets go of.

        They are the original's, so nothing here may find, change or end them any more.
        """
        await self._session.execute(update(Installation).values(id=InstallationId(new_id())))
        left = await self._session.execute(
            update(Sandbox)
            .where(Sandbox.ended_at.is_(None))
            .values(
                state=State.FAILED,
                state_reason=_LET_GO,
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
        await self._session.execute(
            update(Snapshot).values(state="failed", state_reason=_LET_GO, backend_snapshot_id=None)
        )
        await self._session.execute(delete(Job).where(Job.kind.in_(job_kinds)))
        return len(left.all())
