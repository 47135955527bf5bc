from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Text,
    bindparam,
    exists,
    func,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.domain.events import Cause, Entered, entered
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.log.events import SANDBOX_CHANNEL

_AT_WORK = (State.STARTING, State.RUNNING, State.RESUMING)
_IN_PLACE = (*_AT_WORK, State.PAUSING, State.STOPPING)
_DEADLINES = tuple(column.name for column in fields(Deadlines))
_LIVING = frozenset(State) - ENDED
_RECOVERY = TransitionCause(
    cause=Cause.RECOVERY, reason="Recovered by a server after an interruption."
)
_now = func.clock_timestamp()
# What every status call and every transition asks for is built once: building it took longer than carrying it out.
_OWN = select(Sandbox).where(
    Sandbox.id == bindparam("sandbox_id"), Sandbox.tenant_id == bindparam("tenant_id")
)
_FIND = select(Sandbox, _now).where(Sandbox.id == bindparam("sandbox_id"))
_LOCK = _FIND.with_for_update().execution_options(populate_existing=True)
_ANNOUNCE = select(func.pg_notify(SANDBOX_CHANNEL, bindparam("said", type_=Text)))


@dataclass(frozen=True, kw_only=True)
class SandboxFilter:
    """Which of a tenant's sandboxes a list has; those that have ended only when a state is named."""

    states: frozenset[State] = _LIVING
    user_id: str | None = None
    session_id: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def deadlines_of(row: Sandbox) -> Deadlines:
    return Deadlines(**{name: getattr(row, name) for name in _DEADLINES})


def set_deadlines(row: Sandbox, deadlines: Deadlines) -> None:
    for name in _DEADLINES:
        setattr(row, name, getattr(deadlines, name))


def cause_of(row: Sandbox) -> TransitionCause:
    """Read who set the row's target, and why; without a record it is the server's own recovery."""
    return TransitionCause.of(row.wish) if row.wish else _RECOVERY


def state_event(
    row: Sandbox, cause: TransitionCause, *, before: Deadlines | None = None
) -> Entered:
    """Describe that a row entered its state; `before` has the deadlines that it had until then."""
    return entered(
        deadlines_of(row),
        sandbox_id=row.id,
        cause=cause.cause,
        actor=cause.actor,
        reason=cause.reason,
        before=before,
    )


class SandboxRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, sandbox_id: str, *, tenant_id: str) -> Sandbox:
        asked = {"sandbox_id": sandbox_id, "tenant_id": tenant_id}
        row: Sandbox | None = await self._session.scalar(_OWN, asked)
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row

    async def find(self, sandbox_id: str) -> tuple[Sandbox, datetime] | None:
        """Find a sandbox whoever's it is, with the database's clock."""
        found = await self._session.execute(_FIND, {"sandbox_id": sandbox_id})
        row = found.one_or_none()
        return None if row is None else (row[0], row[1])

    async def lock(
        self, sandbox_id: str, *, tenant_id: str | None = None
    ) -> tuple[Sandbox, datetime]:
        """Hold the row until the transaction ends; gives it with the database's clock."""
        locked = _LOCK if tenant_id is None else _LOCK.where(Sandbox.tenant_id == tenant_id)
        row = (await self._session.execute(locked, {"sandbox_id": sandbox_id})).one_or_none()
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row[0], row[1]

    async def list_page(
        self, tenant_id: str, wanted: SandboxFilter, *, limit: int, before: str | None = None
    ) -> Sequence[Sandbox]:
        """List newest first, from the one before the id `before`; ids sort by age."""
        query = select(Sandbox).where(Sandbox.tenant_id == tenant_id, _is_in(wanted.states))
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

    async def add(self, row: Sandbox, *, queue_timeout: timedelta | None = None) -> datetime:
        """Insert the row, which waits in the queue so long from now; gives the database's clock."""
        if queue_timeout is not None:
            row.queue_expires_at = _now + queue_timeout
        self._session.add(row)
        await self._session.flush()
        if queue_timeout is not None:
            await self._session.refresh(row, ["queue_expires_at"])
        return row.created_at

    async def lock_session(self, tenant_id: str, session_id: str) -> None:
        """Be the only one to look for that session's sandbox until the transaction ends.

        To be held before anything else is locked.
        """
        name = f"session/{tenant_id}/{session_id}"
        await self._session.execute(
            select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0)))
        )

    async def find_of_session(self, tenant_id: str, session_id: str) -> Sandbox | None:
        """Find a session's newest sandbox that has not ended and is not wanted gone."""
        return await self._session.scalar(
            select(Sandbox)
            .where(Sandbox.tenant_id == tenant_id, Sandbox.session_id == session_id)
            .where(Sandbox.ended_at.is_(None), Sandbox.target != Target.GONE)
            .order_by(Sandbox.id.desc())
            .limit(1)
        )

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(_now))).scalar_one()
        return now

    async def keep_tools_token(self, sandbox_id: str, sealed: bytes) -> bytes:
        """Keep this token unless there is one; gives the one that holds for everybody."""
        kept: bytes | None = await self._session.scalar(
            update(Sandbox)
            .where(Sandbox.id == sandbox_id)
            .values(tools_token_sealed=func.coalesce(Sandbox.tools_token_sealed, sealed))
            .returning(Sandbox.tools_token_sealed)
        )
        if kept is None:
            raise SandboxNotFound(sandbox_id)
        return kept

    async def note_settings(self, written: Sandbox, digest: bytes) -> bool:
        """Keep what a sandbox's services were told, if that is still what they are to know."""
        noted = await self._session.scalar(
            update(Sandbox)
            .where(
                Sandbox.id == written.id,
                Sandbox.access_sealed == written.access_sealed,
                Sandbox.envs_sealed.is_not_distinct_from(written.envs_sealed),
            )
            .values(services_digest=digest)
            .returning(Sandbox.id)
        )
        return noted is not None

    async def invalidate_settings(self, sandbox_id: str) -> None:
        """Take for unknown what a sandbox's services were told."""
        told = update(Sandbox).where(Sandbox.id == sandbox_id)
        await self._session.execute(told.values(services_digest=None))

    async def target_all_paused(self, wish: TransitionCause) -> Sequence[str]:
        """Want everything paused that has a place to run at, whoever's it is; gives whose target that changes."""
        changed = await self._session.scalars(
            update(Sandbox)
            .where(Sandbox.target == Target.RUNNING, Sandbox.state.in_(_AT_WORK))
            .values(target=Target.PAUSED, wanted=Sandbox.wanted + 1, wish=wish.document())
            .returning(Sandbox.id)
        )
        return changed.all()

    async def any_occupies_slot(self) -> bool:
        """Tell whether anything is running, or on its way somewhere."""
        in_place = exists().where(Sandbox.ended_at.is_(None), Sandbox.state.in_(_IN_PLACE))
        return bool(await self._session.scalar(select(in_place)))

    async def announce(self, *sandbox_ids: str, by: str = "") -> None:
        """Tell whoever waits for these sandboxes, once the transaction has committed; `by` knows already."""
        for sandbox_id in sandbox_ids:
            await self._session.execute(_ANNOUNCE, {"said": f"{sandbox_id}/{by}"})


def _is_in(states: frozenset[State]) -> ColumnElement[bool]:
    # Said in one way or the other: of both the planner takes as few rows for granted as if they were independent.
    return Sandbox.ended_at.is_(None) if states == _LIVING else Sandbox.state.in_(sorted(states))
