"""Jobs: what is to be done about a subject, and when; one row for each, as long as the subject lives.

    due   -- claim, lease -->                leased    its lease is extended, or lapses: claimed by another
    leased -- settle, fail, release -->      due       at the earliest of what was found and what was asked for
    leased -- fail, the last time -->        dead      until it is wanted again

What is asked for while a job is leased goes to `woken_at`, since its holder may have looked at the subject before: the
claim clears it, and whatever ends the lease heeds it.
"""

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    DateTime,
    Text,
    and_,
    any_,
    case,
    delete,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Row
from sandbox_server.domain.errors import JobNotFound
from sandbox_server.domain.jobs import DeadJob, LeasedJob, LeaseLost

DUE = "jobs_due"  # the channel on which it is said that a job is due, or soon will be
LOOK_AHEAD = timedelta(seconds=2)  # schedulers look this often, so what is due later needs no word

AT_ONCE = timedelta()

_LONGEST_ERROR = 2000

_jobs = Row.metadata.tables["jobs"]
_row = _jobs.c
# The same throughout a statement, and stable: `clock_timestamp()` could not bound an index scan.
_now = func.statement_timestamp()
_unleased = or_(_row.leased_until.is_(None), _row.leased_until <= _now)
_LEASED = (_row.id, _row.kind, _row.subject, _row.attempts, _row.leased_by)
_soon = and_(_row.leased_by.is_(None), _row.run_at <= _now + LOOK_AHEAD)


class JobRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def due(self, kind: str, subject: str, at: datetime | None = None) -> None:
        """Have the subject looked at by then, or at once; an earlier instant stays, a dead job revives."""
        upsert = insert(_jobs).values(kind=kind, subject=subject, run_at=at or _now)
        wanted_at = upsert.excluded.run_at
        leased = _row.leased_by.is_not(None)
        upsert = upsert.on_conflict_do_update(
            index_elements=[_row.kind, _row.subject],
            set_={
                "run_at": case((leased, _row.run_at), else_=func.least(_row.run_at, wanted_at)),
                "woken_at": case((leased, func.least(_row.woken_at, wanted_at))),
                "attempts": case((_row.dead_at.is_not(None), 0), else_=_row.attempts),
                "dead_at": None,
            },
        )
        await self._announce(await self._session.scalars(upsert.returning(_soon)))

    async def wake(self, kind: str, subject: str) -> None:
        """Have the subject looked at, if it has a job at all."""
        known = select(_row.id).where(_row.kind == kind, _row.subject == subject)
        if await self._session.scalar(known) is not None:
            await self.due(kind, subject)

    async def lease(
        self, kind: str, subject: str, *, worker: str, lease: timedelta
    ) -> LeasedJob | None:
        """Take the subject's job, due or not; where another holds it, that one is told to look again."""
        fresh = {
            "run_at": _now,  # a lapsed lease is found among what is due
            "leased_by": _new_holder(worker),
            "leased_until": _now + lease,
            "attempts": 1,
        }
        upsert = insert(_jobs).values(kind=kind, subject=subject, **fresh)
        upsert = upsert.on_conflict_do_update(
            index_elements=[_row.kind, _row.subject],
            set_={**fresh, "woken_at": None, "dead_at": None},
            where=_unleased,
        )
        taken = (await self._session.execute(upsert.returning(*_LEASED))).one_or_none()
        if taken is None:  # nevertheless the upsert has locked the row, so its holder cannot settle
            await self.due(kind, subject)
            return None
        return LeasedJob(*taken)

    async def claim(
        self,
        *,
        worker: str,
        kinds: Iterable[str],
        limit: int,
        lease: timedelta,
        avoid: Collection[str] = (),
    ) -> Sequence[LeasedJob]:
        """Lease up to `limit` due jobs to `worker`; rows that another transaction holds are skipped.

        What would be asked of the backends to `avoid` is left for later.
        """
        due = (
            select(_row.id)
            .where(_row.run_at <= _now, _unleased, _one_of(kinds), *_elsewhere(avoid))
            .order_by(_row.run_at, _row.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("due")
        )
        claimed = await self._session.execute(
            update(_jobs)
            .where(_row.id == due.c.id)
            .values(
                leased_by=_new_holder(worker),
                leased_until=_now + lease,
                attempts=_row.attempts + 1,
                woken_at=None,
            )
            .returning(*_LEASED)
        )
        return [LeasedJob(*row) for row in claimed]

    async def find_next_due(
        self, *, kinds: Iterable[str], avoid: Collection[str] = ()
    ) -> timedelta | None:
        """Tell how long it is until a job is due that nobody holds."""
        return await self._session.scalar(
            select(_row.run_at - func.clock_timestamp())
            .where(_row.run_at.is_not(None), _row.leased_by.is_(None), _one_of(kinds))
            .where(*_elsewhere(avoid))
            .order_by(_row.run_at, _row.id)
            .limit(1)
        )

    async def extend(self, jobs: Iterable[LeasedJob], *, lease: timedelta) -> None:
        """Let the leases last from now; those that others took over are left alone.

        A row that a transaction holds is skipped, so that it cannot keep the others from being extended.
        """
        held = _lock_held(dict.fromkeys(jobs))
        await self._session.execute(
            update(_jobs).where(_row.id == held.c.id).values(leased_until=_now + lease)
        )

    async def settle(self, job: LeasedJob, at: datetime | None) -> None:
        """End the lease; the job is due at `at` (None: once it is wanted), or sooner if it was woken."""
        await self._end_lease(job, _settled(literal(at, DateTime(timezone=True))))

    async def settle_unlocked(self, due: dict[LeasedJob, datetime | None]) -> set[int]:
        """Settle those of the jobs whose rows no transaction holds; gives their ids."""
        held = _lock_held(due)
        settled = await self._session.execute(
            update(_jobs)
            .where(_row.id == held.c.id)
            .values(_settled(held.c.at))
            .returning(_row.id, _soon)
        )
        rows = settled.all()
        await self._announce(soon for _, soon in rows)
        return {job_id for job_id, _ in rows}

    async def fail(
        self, job: LeasedJob, *, error: str, delay: timedelta, max_attempts: int
    ) -> None:
        """End the lease; the job is due after `delay`, or dead if that was its last attempt.

        If it was woken meanwhile it is due as soon as that asks for, and not dead.
        """
        dead = and_(_row.attempts >= max_attempts, _row.woken_at.is_(None))
        next_at = case((_row.attempts < max_attempts, _now + delay))
        await self._end_lease(
            job,
            {
                **_freed(func.least(_row.woken_at, next_at)),
                "last_error": _storable(error),
                "dead_at": case((dead, _now)),
            },
        )

    async def release(self, job: LeasedJob, *, delay: timedelta = AT_ONCE) -> None:
        """End the lease as if the job had never been taken; it is due at once, or after the delay."""
        due_at = func.least(_row.woken_at, _now + delay) if delay else _now
        await self._end_lease(job, {**_freed(due_at), "attempts": _row.attempts - 1})

    async def retry(self, job_id: int) -> None:
        """Have a dead or failing job tried at once, and as often as a new one."""
        retried = (
            update(_jobs)
            .where(_row.id == job_id)
            .values(
                run_at=func.least(_row.run_at, _now),
                woken_at=case((_row.leased_by.is_not(None), _now)),
                attempts=0,
                dead_at=None,
            )
        )
        soon = (await self._session.scalars(retried.returning(_soon))).all()
        if not soon:
            raise JobNotFound(str(job_id))
        await self._announce(soon)

    async def list_dead(self, *, limit: int, after: int = 0) -> Sequence[DeadJob]:
        """List what is left alone, by id."""
        columns = (_row.id, _row.kind, _row.subject, _row.attempts, _row.last_error, _row.dead_at)
        dead = await self._session.execute(
            select(*columns)
            .where(_row.dead_at.is_not(None), _row.id > after)
            .order_by(_row.id)
            .limit(limit)
        )
        return [DeadJob(*row) for row in dead]

    async def remove(self, kind: str, subject: str) -> None:
        """Forget the job of a subject that is gone."""
        await self._session.execute(delete(_jobs).where(_row.kind == kind, _row.subject == subject))

    async def _end_lease(self, job: LeasedJob, values: dict[str, Any]) -> None:
        ended = (
            update(_jobs)
            .where(_row.id == job.id, _row.leased_by == job.leased_by)
            .values(values)
            .returning(_soon)
        )
        soon = (await self._session.scalars(ended)).all()
        if not soon and await self._session.scalar(select(_row.id).where(_row.id == job.id)):
            raise LeaseLost(job)
        await self._announce(soon)

    async def _announce(self, soon: Iterable[bool | None]) -> None:
        if any(soon):
            await self._session.execute(select(func.pg_notify(DUE, "")))


def _one_of(kinds: Iterable[str]) -> ColumnElement[bool]:
    # A condition that no statistics are of. From a plain one the planner takes what is due for little until the table
    # is analyzed, and then reads and sorts all of it for each claim.
    return func.coalesce(_row.kind.in_(kinds), false())


def _elsewhere(avoid: Collection[str]) -> Sequence[ColumnElement[bool]]:
    """Leave out the jobs of what lives at these backends."""
    if not avoid:
        return ()
    names = literal(sorted(avoid), ARRAY(Text))
    tables = [Row.metadata.tables[name].c for name in ("sandboxes", "snapshots")]
    there = [exists().where(its.id == _row.subject, its.backend == any_(names)) for its in tables]
    build = func.split_part(_row.subject, "/", 2) == any_(names)
    return [not_(or_(*there, build))]


def _lock_held(due: dict[LeasedJob, datetime | None]) -> CTE:
    """Lock the rows of the jobs that are still their holders', with when each is due next."""
    given = select(
        func.unnest(literal([job.id for job in due], ARRAY(BigInteger))).label("id"),
        func.unnest(literal([job.leased_by for job in due], ARRAY(Text))).label("leased_by"),
        func.unnest(literal(list(due.values()), ARRAY(DateTime(timezone=True)))).label("at"),
    ).subquery("given")
    return (
        select(_row.id, given.c.at)
        .join(given, and_(_row.id == given.c.id, _row.leased_by == given.c.leased_by))
        .with_for_update(of=_jobs, skip_locked=True)
        .cte("held")
    )


def _settled(at: ColumnElement[datetime]) -> dict[str, Any]:
    return {**_freed(func.least(_row.woken_at, at)), "attempts": 0, "last_error": None}


def _freed(run_at: ColumnElement[Any]) -> dict[str, Any]:
    return {"run_at": run_at, "woken_at": None, "leased_by": None, "leased_until": None}


def _new_holder(worker: str) -> str:
    return f"{worker}/{secrets.token_hex(4)}"


def _storable(text: str) -> str:
    """Leave out what PostgreSQL's text cannot hold, and what nobody would read to the end."""
    return text[:_LONGEST_ERROR].replace("\0", "").encode(errors="replace").decode()
