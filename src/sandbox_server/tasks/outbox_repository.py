from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, ForgeWrite, Repository, Task
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.ids import new_id
from sandbox_server.jobs.kinds import FORGE_WRITES
from sandbox_server.jobs.repository import JobRepository

_LONGEST_ERROR = 2000


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
        self, *, forge_id: str, task_id: str, kind: str, key: str, payload: Mapping[str, Any]
    ) -> None:
        """Request a write once: a repeated request with the same key changes nothing."""
        added = _row(forge_id, task_id, kind, key, payload).on_conflict_do_nothing()
        await self._request(added.returning(ForgeWrite.id), forge_id)

    async def put_comment(
        self, *, forge_id: str, task_id: str, key: str, number: int, body: str
    ) -> None:
        """Request a comment that is edited in place: there is one per task and key."""
        payload = {"number": number, "body": body}
        added = _row(forge_id, task_id, "comment", key, payload)
        changed = added.on_conflict_do_update(
            index_elements=[ForgeWrite.task_id, ForgeWrite.kind, ForgeWrite.key],
            set_={"payload": payload, "done_at": None, "error": None},
            where=ForgeWrite.payload != added.excluded.payload,
        )
        await self._request(changed.returning(ForgeWrite.id), forge_id)

    async def find_next(self, forge_id: str) -> PendingWrite | None:
        """Find the oldest write that is not done."""
        found = (
            select(ForgeWrite, Forge, Repository)
            .join(Forge, Forge.id == ForgeWrite.forge_id)
            .join(Task, Task.id == ForgeWrite.task_id)
            .join(Repository, Repository.id == Task.repository_id)
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


def _row(forge_id: str, task_id: str, kind: str, key: str, payload: Mapping[str, Any]) -> Any:
    return insert(ForgeWrite).values(
        id=new_id(),
        forge_id=forge_id,
        task_id=task_id,
        kind=kind,
        key=key,
        payload=dict(payload),
    )
