from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.domain.state import ENDED, State

CHANGED = "sandbox_changed"  # the channel on which a sandbox's id is said when its row has changed

_DEADLINES = tuple(column.name for column in fields(Deadlines))
_now = func.clock_timestamp()


@dataclass(frozen=True, kw_only=True)
class SandboxFilter:
    """Which of a tenant's sandboxes a list has; those that have ended only when a state is named."""

    states: frozenset[State] = frozenset(State) - ENDED
    user_id: str | None = None
    session_id: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def deadlines_of(row: Sandbox) -> Deadlines:
    return Deadlines(**{name: getattr(row, name) for name in _DEADLINES})


def set_deadlines(row: Sandbox, deadlines: Deadlines) -> None:
    for name in _DEADLINES:
        setattr(row, name, getattr(deadlines, name))


class SandboxRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, sandbox_id: str, *, tenant_id: str) -> Sandbox:
        row = await self._session.scalar(
            select(Sandbox).where(Sandbox.id == sandbox_id, Sandbox.tenant_id == tenant_id)
        )
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row

    async def find(self, sandbox_id: str) -> tuple[Sandbox, datetime] | None:
        """Find a sandbox whoever's it is, with the database's clock."""
        found = await self._session.execute(select(Sandbox, _now).where(Sandbox.id == sandbox_id))
        row = found.one_or_none()
        return None if row is None else (row[0], row[1])

    async def lock(
        self, sandbox_id: str, *, tenant_id: str | None = None
    ) -> tuple[Sandbox, datetime]:
        """Hold the row until the transaction ends; gives it with the database's clock."""
        locked = select(Sandbox, _now).where(Sandbox.id == sandbox_id).with_for_update()
        if tenant_id is not None:
            locked = locked.where(Sandbox.tenant_id == tenant_id)
        fresh = locked.execution_options(populate_existing=True)
        row = (await self._session.execute(fresh)).one_or_none()
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row[0], row[1]

    async def list_page(
        self, tenant_id: str, wanted: SandboxFilter, *, limit: int, before: str | None = None
    ) -> Sequence[Sandbox]:
        """List newest first, from the one before the id `before`; ids sort by age."""
        query = select(Sandbox).where(
            Sandbox.tenant_id == tenant_id, Sandbox.state.in_(sorted(wanted.states))
        )
        if before is not None:
            query = query.where(Sandbox.id < before)
        if wanted.user_id is not None:
            query = query.where(Sandbox.user_id == wanted.user_id)
        if wanted.session_id is not None:
            query = query.where(Sandbox.session_id == wanted.session_id)
        if wanted.labels:
            query = query.where(Sandbox.labels.contains(wanted.labels))
        page = await self._session.scalars(query.order_by(Sandbox.id.desc()).limit(limit))
        return page.all()

    async def add(self, row: Sandbox) -> datetime:
        """Insert the row; gives the database's clock."""
        self._session.add(row)
        await self._session.flush()
        return await self.clock()

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(_now))).scalar_one()
        return now

    async def touch(self, sandbox_id: str) -> None:
        """Note activity, without a word to anybody: timers find it when they fire."""
        await self._session.execute(
            update(Sandbox)
            .where(Sandbox.id == sandbox_id, Sandbox.state == State.RUNNING)
            .values(last_activity_at=func.greatest(Sandbox.last_activity_at, _now))
        )

    async def announce(self, *sandbox_ids: str) -> None:
        """Tell whoever waits for these sandboxes, once the transaction has committed."""
        for sandbox_id in sandbox_ids:
            await self._session.execute(select(func.pg_notify(CHANGED, sandbox_id)))
