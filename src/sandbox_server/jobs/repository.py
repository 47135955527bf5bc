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
from sandbox_server.domain.jobs import DeadJob, LeasedJob, LeaseLost
from sandbox_server.domain.texts import storable
from sandbox_server.jobs.statements import (
    ACK_UNLOCKED,
    EXTEND,
    HAVE_DUE,
    INSTANT,
    JOBS,
    LEASE,
    LEASED,
    NOW,
    ROW,
    TOLD,
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
        """Have the subject looked at by then, or at once; an earlier instant stays, a dead job revives."""
        await self._session.execute(HAVE_DUE, {"kind": kind, "subject": subject, "at": at})

    async def wake(self, kind: str, subject: str) -> None:
        """Have the subject looked at, if it has a job at all."""
        known = select(ROW.id).where(ROW.kind == kind, ROW.subject == subject)
        if await self._session.scalar(known) is not None:
            await self.due(kind, subject)

    async def lease(
        self, kind: str, subject: str, *, worker: str, lease: timedelta
    ) -> LeasedJob | None:
        """Take the subject's job, due or not; where another holds it, that one is told to look again."""
        wanted = {"kind": kind, "subject": subject, "holder": _new_holder(worker), "lease": lease}
        taken = (await self._session.execute(LEASE, wanted)).one_or_none()
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
        """Tell how long it is until a job is due that nobody holds."""
        return await self._session.scalar(
            select(ROW.run_at - func.clock_timestamp())
            .where(ROW.run_at.is_not(None), ROW.leased_by.is_(None), _one_of(kinds))
            .where(*_elsewhere(avoid))
            .order_by(ROW.run_at, ROW.id)
            .limit(1)
        )

    async def extend(self, jobs: Iterable[LeasedJob], *, lease: timedelta) -> None:
        """Let the leases last from now; those that others took over are left alone.

        A row that a transaction holds is skipped, so that it cannot keep the others from being extended.
        """
        held = {**_given(dict.fromkeys(jobs)), "lease": lease}
        await self._session.execute(EXTEND, held)

    async def ack(self, job: LeasedJob, at: datetime | None) -> None:
        """End the lease; the job is due at `at` (None: once it is wanted), or sooner if it was woken."""
        await self._end_lease(job, acked(literal(at, INSTANT)))

    async def ack_unlocked(self, due: dict[LeasedJob, datetime | None]) -> set[int]:
        """Settle those of the jobs whose rows no transaction holds; gives their ids."""
        done = await self._session.execute(ACK_UNLOCKED, _given(due))
        return {job_id for job_id, _ in done}

    async def fail(
        self, job: LeasedJob, *, error: str, delay: timedelta, max_attempts: int
    ) -> None:
        """End the lease; the job is due after `delay`, or dead if that was its last attempt.

        If it was woken meanwhile it is due as soon as that asks for, and not dead.
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
        """End the lease as if the job had never been taken; it is due at once, or after the delay."""
        due_at = func.least(ROW.woken_at, NOW + delay) if delay else NOW
        await self._end_lease(job, {**freed(due_at), "attempts": ROW.attempts - 1})

    async def retry(self, job_id: int) -> None:
        """Have a dead or failing job tried at once, and as often as a new one."""
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
        if not (await self._session.execute(retried.returning(ROW.id, TOLD))).all():
            raise JobNotFound(str(job_id))

    async def find_error(self, kind: str, subject: str) -> str | None:
        """Find why a subject's job failed the last time, if it did not succeed since."""
        return await self._session.scalar(
            select(ROW.last_error).where(ROW.kind == kind, ROW.subject == subject)
        )

    async def list_dead(self, *, limit: int, after: int = 0) -> Sequence[DeadJob]:
        """List what is left alone, by id."""
        columns = (ROW.id, ROW.kind, ROW.subject, ROW.attempts, ROW.last_error, ROW.dead_at)
        dead = await self._session.execute(
            select(*columns)
            .where(ROW.dead_at.is_not(None), ROW.id > after)
            .order_by(ROW.id)
            .limit(limit)
        )
        return [DeadJob(*row) for row in dead]

    async def remove(self, kind: str, subject: str) -> None:
        """Forget the job of a subject that is gone."""
        await self._session.execute(delete(JOBS).where(ROW.kind == kind, ROW.subject == subject))

    async def _end_lease(self, job: LeasedJob, values: dict[str, Any]) -> None:
        ended = (
            update(JOBS)
            .where(ROW.id == job.id, ROW.leased_by == job.leased_by)
            .values(values)
            .returning(ROW.id, TOLD)
        )
        if (await self._session.execute(ended)).all():
            return
        if await self._session.scalar(select(ROW.id).where(ROW.id == job.id)):
            raise LeaseLost(job)


def _one_of(kinds: Iterable[str]) -> ColumnElement[bool]:
    # A condition that no statistics are of. From a plain one the planner takes what is due for little until the table
    # is analyzed, and then reads and sorts all of it for each claim.
    return func.coalesce(ROW.kind.in_(kinds), false())


def _elsewhere(avoid: Collection[str]) -> Sequence[ColumnElement[bool]]:
    """Leave out the jobs of what lives at these backends."""
    if not avoid:
        return ()
    names = literal(sorted(avoid), ARRAY(Text))
    tables = [TABLES[name].c for name in ("sandboxes", "snapshots")]
    there = [exists().where(its.id == ROW.subject, its.backend == any_(names)) for its in tables]
    build = func.split_part(ROW.subject, "/", 2) == any_(names)
    return [not_(or_(*there, build))]


def _given(due: dict[LeasedJob, datetime | None]) -> dict[str, Any]:
    ids, holders = [job.id for job in due], [job.leased_by for job in due]
    return {"ids": ids, "holders": holders, "ats": list(due.values())}


def _new_holder(worker: str) -> str:
    return f"{worker}/{secrets.token_hex(4)}"
