from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, union, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from sandbox_server.db.models import Sandbox, Template
from sandbox_server.vault import KEY_ID_SLICE

_START, _LENGTH = KEY_ID_SLICE.start + 1, KEY_ID_SLICE.stop - KEY_ID_SLICE.start


@dataclass(frozen=True)
class SealedColumn:
    """A column of sealed values, and what each is sealed for: `{context}/{id}`."""

    id: InstrumentedAttribute[str]
    value: InstrumentedAttribute[bytes | None]
    context: str


SEALED_COLUMNS = (
    SealedColumn(Sandbox.id, Sandbox.envs_sealed, "sandboxes.envs"),
    SealedColumn(Sandbox.id, Sandbox.access_sealed, "sandboxes.access"),
    SealedColumn(Sandbox.id, Sandbox.tools_token_sealed, "sandboxes.tools_token"),
    SealedColumn(Template.id, Template.definition_sealed, "templates.definition"),
)


class SealedRepository:
    """All sealed values of the database, whatever they are part of."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def key_ids(self) -> set[str]:
        """Tell which keys something in the database is sealed with."""
        every = [
            select(_key_id(column).label("key_id")).where(column.value.is_not(None))
            for column in SEALED_COLUMNS
        ]
        found = await self._session.scalars(select(union(*every).subquery().c.key_id))
        return set(found.all())

    async def list_stale(
        self, column: SealedColumn, *, key_id: str, after: str, limit: int
    ) -> Sequence[tuple[str, bytes]]:
        """List values that another key than this one sealed, by their rows' ids."""
        stale = (
            select(column.id, column.value)
            .where(column.id > after, _key_id(column) != key_id)
            .order_by(column.id)
            .limit(limit)
        )
        rows = await self._session.execute(stale)
        return [(row_id, value) for row_id, value in rows if value is not None]

    async def replace(self, column: SealedColumn, row_id: str, *, old: bytes, new: bytes) -> None:
        """Seal it anew, unless somebody has written another value meanwhile."""
        await self._session.execute(
            update(column.value.class_)
            .where(column.id == row_id, column.value == old)
            .values({column.value.key: new})
        )


def _key_id(column: SealedColumn) -> ColumnElement[str]:
    return func.encode(func.substring(column.value, _START, _LENGTH), "hex")
