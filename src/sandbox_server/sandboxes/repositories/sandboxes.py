from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Text,
    bindparam,
    exists,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository, Sandbox
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
# Statements of every status request and transition; built once, since building takes longer than executing.
_OWN = select(Sandbox).where(
    Sandbox.id == bindparam("sandbox_id"), Sandbox.tenant_id == bindparam("tenant_id")
)
_FIND = select(Sandbox, _now).where(Sandbox.id == bindparam("sandbox_id"))
_LOCK = _FIND.with_for_update().execution_options(populate_existing=True)
_ANNOUNCE = select(func.pg_notify(SANDBOX_CHANNEL, bindparam("payload", type_=Text)))


@dataclass(frozen=True, kw_only=True)
class SandboxFilter:
    """A filter of a tenant's sandboxes; ended ones are listed only if their state is named."""

    states: frozenset[State] = _LIVING
    ids: frozenset[str] | None = None
    template: str | None = None
    backend: str | None = None
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
        parameters = {"sandbox_id": sandbox_id, "tenant_id": tenant_id}
        row: Sandbox | None = await self._session.scalar(_OWN, parameters)
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row

    async def find(self, sandbox_id: str) -> tuple[Sandbox, datetime] | None:
        """Find a sandbox of any tenant, with the database's clock."""
        found = await self._session.execute(_FIND, {"sandbox_id": sandbox_id})
        row = found.one_or_none()
        return None if row is None else (row[0], row[1])

    async def lock(
        self, sandbox_id: str, *, tenant_id: str | None = None
    ) -> tuple[Sandbox, datetime]:
        """Lock the row until the transaction ends; returns it with the database's clock."""
        locked = _LOCK if tenant_id is None else _LOCK.where(Sandbox.tenant_id == tenant_id)
        row = (await self._session.execute(locked, {"sandbox_id": sandbox_id})).one_or_none()
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row[0], row[1]

    async def list_page(
        self, tenant_id: str, wanted: SandboxFilter, *, limit: int, before: str | None = None
    ) -> Sequence[Sandbox]:
        """List newest first, after the id `before`; ids sort by age."""
        query = select(Sandbox).where(Sandbox.tenant_id == tenant_id, _is_in(wanted.states))
        if before is not None:
            query = query.where(Sandbox.id < before)
        if wanted.ids is not None:
            query = query.where(Sandbox.id.in_(wanted.ids))
        if wanted.template is not None:
            query = query.where(Sandbox.template == wanted.template)
        if wanted.backend is not None:
            query = query.where(Sandbox.backend == wanted.backend)
        if wanted.user_id is not None:
            query = query.where(Sandbox.user_id == wanted.user_id)
        if wanted.session_id is not None:
            query = query.where(Sandbox.session_id == wanted.session_id)
        if wanted.labels:
            query = query.where(Sandbox.labels.contains(wanted.labels))
        page = await self._session.scalars(query.order_by(Sandbox.id.desc()).limit(limit))
        return page.all()

    async def add(self, row: Sandbox, *, queue_timeout: timedelta | None = None) -> datetime:
        """Insert the row, with a queue timeout from now; returns the database's clock."""
        if queue_timeout is not None:
            row.queue_expires_at = _now + queue_timeout
        self._session.add(row)
        await self._session.flush()
        if queue_timeout is not None:
            await self._session.refresh(row, ["queue_expires_at"])
        return row.created_at

    async def lock_session(self, tenant_id: str, session_id: str) -> None:
        """Lock the session's name until the transaction ends; take this lock before any other."""
        name = f"session/{tenant_id}/{session_id}"
        await self._session.execute(
            select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0)))
        )

    async def find_of_session(self, tenant_id: str, session_id: str) -> Sandbox | None:
        """Find a session's newest sandbox that has not ended and is not to be deleted."""
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
        """Store the token unless there is one; returns the stored one."""
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
        """Store the digest of written settings, if the settings have not changed since."""
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
        """Clear the digest of the settings, so that they are written again."""
        updated = update(Sandbox).where(Sandbox.id == sandbox_id)
        await self._session.execute(updated.values(services_digest=None))

    async def update_checkout(self, sandbox_id: str, changes: Mapping[str, Any]) -> None:
        """Record how far the checkout of a sandbox's repository is."""
        updated = update(Sandbox).where(Sandbox.id == sandbox_id, Sandbox.checkout.is_not(None))
        merged = Sandbox.checkout.op("||")(bindparam("changes", dict(changes), type_=JSONB))
        await self._session.execute(updated.values(checkout=merged))

    async def names_of_repositories(self, rows: Iterable[Sandbox]) -> dict[str, str]:
        """Look up the names of the repositories that sandboxes were created with."""
        ids = {row.checkout["repository_id"] for row in rows if row.checkout is not None}
        if not ids:
            return {}
        found = await self._session.execute(
            select(Repository.id, Repository.full_name).where(Repository.id.in_(ids))
        )
        return {row.id: row.full_name for row in found}

    async def target_all_paused(self, wish: TransitionCause) -> Sequence[str]:
        """Set the target `paused` for every sandbox that runs, starts or resumes; returns the changed ids."""
        changed = await self._session.scalars(
            update(Sandbox)
            .where(Sandbox.target == Target.RUNNING, Sandbox.state.in_(_AT_WORK))
            .values(target=Target.PAUSED, wanted=Sandbox.wanted + 1, wish=wish.document())
            .returning(Sandbox.id)
        )
        return changed.all()

    async def any_occupies_slot(self) -> bool:
        """Whether any sandbox occupies a slot."""
        in_place = exists().where(Sandbox.ended_at.is_(None), Sandbox.state.in_(_IN_PLACE))
        return bool(await self._session.scalar(select(in_place)))

    async def announce(self, *sandbox_ids: str, by: str = "") -> None:
        """Notify processes of changed rows after the commit; the process named `by` ignores it."""
        for sandbox_id in sandbox_ids:
            await self._session.execute(_ANNOUNCE, {"payload": f"{sandbox_id}/{by}"})


def _is_in(states: frozenset[State]) -> ColumnElement[bool]:
    # One condition or the other: the planner would multiply the selectivities of both as if they were independent.
    return Sandbox.ended_at.is_(None) if states == _LIVING else Sandbox.state.in_(sorted(states))
