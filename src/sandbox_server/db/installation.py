from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Installation
from sandbox_server.domain.ids import InstallationId, new_id


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
