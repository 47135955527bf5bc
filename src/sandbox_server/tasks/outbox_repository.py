from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, ForgeWrite, Repository
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.ids import new_id
from sandbox_server.jobs.kinds import FORGE_WRITES
from sandbox_server.jobs.repository import JobRepository

_LONGEST_ERROR = 2000


@dataclass(frozen=True, kw_only=True)
class WriteOwner:
    """The subject of a write: a task, or the repository itself."""

    forge_id: str
    repository_id: str
    task_id: str | None = None


@dataclass(frozen=True)
class PendingWrite:
    """A write that is due, with what it is written to."""

    row: ForgeWrite
    forge: Forge
    repository: Repository


class Outbox:
    """Writes to a forge, committed together with what makes them necessary, and done by a job."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(
        self, owner: WriteOwner, *, kind: str, key: str, payload: Mapping[str, Any]
    ) -> None:
        """Request a write once: a repeated request with the same key changes nothing."""
        added = _row(owner, kind, key, payload).on_conflict_do_nothing()
        await self._request(added.returning(ForgeWrite.id), owner.forge_id)

    async def put_comment(
        self, owner: WriteOwner, *, key: str, body: str, **subject: str | int
    ) -> None:
        """Request a comment that is edited in place: there is one per owner and key."""
        payload = {**subject, "body": body}
        added = _row(owner, "comment", key, payload)
        of = ForgeWrite.repository_id if owner.task_id is None else ForgeWrite.task_id
        changed = added.on_conflict_do_update(
            index_elements=[of, ForgeWrite.kind, ForgeWrite.key],
            index_where=ForgeWrite.task_id.is_(None) if owner.task_id is None else None,
            set_={"payload": payload, "done_at": None, "error": None},
            where=ForgeWrite.payload != added.excluded.payload,
        )
        await self._request(changed.returning(ForgeWrite.id), owner.forge_id)

    async def get(self, owner: WriteOwner, *, kind: str, key: str) -> ForgeWrite:
        """Get a write that was requested."""
        of = (
            ForgeWrite.task_id.is_(None)
            if owner.task_id is None
            else ForgeWrite.task_id == owner.task_id
        )
        wanted = select(ForgeWrite).where(
            ForgeWrite.repository_id == owner.repository_id,
            ForgeWrite.kind == kind,
            ForgeWrite.key == key,
            of,
        )
        return (await self._session.scalars(wanted)).one()

    async def find_next(self, forge_id: str) -> PendingWrite | None:
        """Find the oldest write that is not done."""
        found = (
            select(ForgeWrite, Forge, Repository)
            .join(Forge, Forge.id == ForgeWrite.forge_id)
            .join(Repository, Repository.id == ForgeWrite.repository_id)
            .where(ForgeWrite.forge_id == forge_id, ForgeWrite.done_at.is_(None))
            .order_by(ForgeWrite.id)
            .limit(1)
        )
        row = (await self._session.execute(found)).one_or_none()
        return None if row is None else PendingWrite(*row)

    async def mark_attempted(self, row: ForgeWrite) -> None:
        await self._update(row, attempted_at=func.clock_timestamp())

    async def finish(self, row: ForgeWrite, result: Mapping[str, Any]) -> None:
        """Record that a write is done, unless it was requested with another content meanwhile."""
        await self._session.execute(
            update(ForgeWrite)
            .where(ForgeWrite.id == row.id)
            .values(result=dict(result), attempted_at=None)
        )
        same = (ForgeWrite.id == row.id, ForgeWrite.payload == row.payload)
        done = update(ForgeWrite).where(*same).values(done_at=func.clock_timestamp(), error=None)
        await self._session.execute(done)

    async def give_up(self, row: ForgeWrite, reason: str) -> None:
        """Record that the forge refuses a write for good."""
        await self._update(
            row, done_at=func.clock_timestamp(), error=storable(reason)[:_LONGEST_ERROR]
        )

    async def _request(self, statement: Any, forge_id: str) -> None:
        if await self._session.scalar(statement) is not None:
            await JobRepository(self._session).due(FORGE_WRITES, forge_id)

    async def _update(self, row: ForgeWrite, **values: Any) -> None:
        await self._session.execute(
            update(ForgeWrite).where(ForgeWrite.id == row.id).values(values)
        )


def _row(owner: WriteOwner, kind: str, key: str, payload: Mapping[str, Any]) -> Any:
    return insert(ForgeWrite).values(
        id=new_id(),
        forge_id=owner.forge_id,
        repository_id=owner.repository_id,
        task_id=owner.task_id,
        kind=kind,
        key=key,
        payload=dict(payload),
    )
