"""Jobs: one row per kind and subject, for as long as the subject exists.

    due    -- claim, lease -->          leased    the lease is extended, or expires: claimed by another worker
    leased -- ack, fail, release -->    due       at the earlier of the handler's result and `woken_at`
    leased -- fail, last attempt -->    dead      until it is requested again

A request during a lease is stored in `woken_at`, since the holder may have read the subject before: a claim clears it,
and the end of the lease respects it.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
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
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import TABLES
from sandbox_server.domain.errors import JobNotFound
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.jobs import DeadJob, LeasedJob, LeaseLost
from sandbox_server.jobs.statements import (
    ACK_UNLOCKED,
    EXTEND,
    INSTANT,
    JOBS,
    LEASE,
    LEASED,
    MAKE_DUE,
    NOTIFIED,
    NOW,
    ROW,
    UNLEASED,
    acked,
    freed,
)

AT_ONCE = timedelta()

_LONGEST_ERROR = 2000


class JobRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def due(self, kind: str, subject: str, at: datetime | None = None) -> None:
        """Make the job due at `at`, or at once. An earlier instant is kept; a dead job is revived."""
        await self._session.execute(MAKE_DUE, {"kind": kind, "subject": subject, "at": at})

    async def wake(self, kind: str, subject: str) -> None:
        """Make the job due at once, if there is one."""
        known = select(ROW.id).where(ROW.kind == kind, ROW.subject == subject)
        if await self._session.scalar(known) is not None:
            await self.due(kind, subject)

    async def lease(
        self, kind: str, subject: str, *, worker: str, lease: timedelta
    ) -> LeasedJob | None:
        """Lease the job, due or not; if another worker holds it, that one is woken."""
        wanted = {"kind": kind, "subject": subject, "holder": _new_holder(worker), "lease": lease}
        taken = (await self._session.execute(LEASE, wanted)).one_or_none()
        if taken is None:  # the upsert has locked the row nevertheless, so its holder cannot ack
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

        Jobs of sandboxes at the backends to `avoid` are skipped too.
        """
        due = (
            select(ROW.id)
            .where(ROW.run_at <= NOW, UNLEASED, _one_of(kinds), *_elsewhere(avoid))
            .order_by(ROW.run_at, ROW.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("due")
        )
        claimed = await self._session.execute(
            update(JOBS)
            .where(ROW.id == due.c.id)
            .values(
                leased_by=_new_holder(worker),
                leased_until=NOW + lease,
                attempts=ROW.attempts + 1,
                woken_at=None,
            )
            .returning(*LEASED, NOW - ROW.run_at)
        )
        return [LeasedJob(*row) for row in claimed]

    async def find_next_due(
        self, *, kinds: Iterable[str], avoid: Collection[str] = ()
    ) -> timedelta | None:
        """Find the time until the next unleased job is due."""
        return await self._session.scalar(
            select(ROW.run_at - func.clock_timestamp())
            .where(ROW.run_at.is_not(None), ROW.leased_by.is_(None), _one_of(kinds))
            .where(*_elsewhere(avoid))
            .order_by(ROW.run_at, ROW.id)
            .limit(1)
        )

    async def extend(self, jobs: Iterable[LeasedJob], *, lease: timedelta) -> None:
        """Extend the leases from now; those that other workers took over are skipped.

        Locked rows are skipped too, so that one of them does not block the rest.
        """
        held = {**_parameters(dict.fromkeys(jobs)), "lease": lease}
        await self._session.execute(EXTEND, held)

    async def ack(self, job: LeasedJob, at: datetime | None) -> None:
        """End the lease; the job is due at `at` (None: when it is requested), or earlier if it was woken."""
        await self._end_lease(job, acked(literal(at, INSTANT)))

    async def ack_unlocked(self, due: Mapping[LeasedJob, datetime | None]) -> set[int]:
        """Acknowledge the jobs whose rows are not locked; returns their ids and those of removed jobs."""
        done = await self._session.execute(ACK_UNLOCKED, _parameters(due))
        return {job_id for job_id, _ in done}

    async def fail(
        self, job: LeasedJob, *, error: str, delay: timedelta, max_attempts: int
    ) -> None:
        """End the lease; the job is due after `delay`, or dead after its last attempt.

        A job that was woken during the lease is due at that instant instead, and not dead.
        """
        dead = and_(ROW.attempts >= max_attempts, ROW.woken_at.is_(None))
        next_at = case((ROW.attempts < max_attempts, NOW + delay))
        await self._end_lease(
            job,
            {
                **freed(func.least(ROW.woken_at, next_at)),
                "last_error": storable(error[:_LONGEST_ERROR]),
                "dead_at": case((dead, NOW)),
            },
        )

    async def release(self, job: LeasedJob, *, delay: timedelta = AT_ONCE) -> None:
        """End the lease without counting the attempt; the job is due at once, or after the delay."""
        due_at = func.least(ROW.woken_at, NOW + delay) if delay else NOW
        await self._end_lease(job, {**freed(due_at), "attempts": ROW.attempts - 1})

    async def retry(self, job_id: int) -> None:
        """Make a dead or failing job due at once, with the attempts of a new one."""
        retried = (
            update(JOBS)
            .where(ROW.id == job_id)
            .values(
                run_at=func.least(ROW.run_at, NOW),
                woken_at=case((ROW.leased_by.is_not(None), NOW)),
                attempts=0,
                dead_at=None,
            )
        )
        if not (await self._session.execute(retried.returning(ROW.id, NOTIFIED))).all():
            raise JobNotFound(str(job_id))

    async def find_error(self, kind: str, subject: str) -> str | None:
        """Find the error of the last attempt, if that failed."""
        return await self._session.scalar(
            select(ROW.last_error).where(ROW.kind == kind, ROW.subject == subject)
        )

    async def list_dead(self, *, limit: int, after: int = 0) -> Sequence[DeadJob]:
        """List dead jobs by id."""
        columns = (ROW.id, ROW.kind, ROW.subject, ROW.attempts, ROW.last_error, ROW.dead_at)
        dead = await self._session.execute(
            select(*columns)
            .where(ROW.dead_at.is_not(None), ROW.id > after)
            .order_by(ROW.id)
            .limit(limit)
        )
        return [DeadJob(*row) for row in dead]

    async def remove(self, kind: str, subject: str) -> None:
        """Delete the job of a subject that no longer exists."""
        await self._session.execute(delete(JOBS).where(ROW.kind == kind, ROW.subject == subject))

    async def _end_lease(self, job: LeasedJob, values: dict[str, Any]) -> None:
        ended = (
            update(JOBS)
            .where(ROW.id == job.id, ROW.leased_by == job.leased_by)
            .values(values)
            .returning(ROW.id, NOTIFIED)
        )
        if (await self._session.execute(ended)).all():
            return
        if await self._session.scalar(select(ROW.id).where(ROW.id == job.id)):
            raise LeaseLost(job)


def _one_of(kinds: Iterable[str]) -> ColumnElement[bool]:
    # COALESCE hides the condition from the planner's statistics. With a plain condition it underestimates the due
    # rows until the table is analyzed, and then reads and sorts all of them for each claim.
    return func.coalesce(ROW.kind.in_(kinds), false())


def _elsewhere(avoid: Collection[str]) -> Sequence[ColumnElement[bool]]:
    """Exclude the jobs of sandboxes, snapshots and builds at these backends."""
    if not avoid:
        return ()
    names = literal(sorted(avoid), ARRAY(Text))
    tables = [TABLES[name].c for name in ("sandboxes", "snapshots")]
    there = [exists().where(its.id == ROW.subject, its.backend == any_(names)) for its in tables]
    build = func.split_part(ROW.subject, "/", 2) == any_(names)
    return [not_(or_(*there, build))]


def _parameters(due: Mapping[LeasedJob, datetime | None]) -> dict[str, Any]:
    ids, holders = [job.id for job in due], [job.leased_by for job in due]
    return {"ids": ids, "holders": holders, "ats": list(due.values())}


def _new_holder(worker: str) -> str:
    return f"{worker}/{secrets.token_hex(4)}"
