"""Statements about jobs that every transition executes; built once, since building them takes longer than executing."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    DateTime,
    Interval,
    Text,
    and_,
    bindparam,
    case,
    func,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import Insert, insert

from sandbox_server.db.models import TABLES

DUE = "jobs_due"  # the NOTIFY channel for jobs that are due soon
LOOK_AHEAD = timedelta(
    seconds=2
)  # schedulers poll at this interval, so later jobs need no notification

INSTANT = DateTime(timezone=True)

JOBS = TABLES["jobs"]
ROW = JOBS.c
# Constant within a statement; `clock_timestamp()` is volatile and cannot bound an index scan.
NOW = func.statement_timestamp()
UNLEASED = or_(ROW.leased_until.is_(None), ROW.leased_until <= NOW)
LEASED = (ROW.id, ROW.kind, ROW.subject, ROW.attempts, ROW.leased_by)
_is_soon = and_(ROW.leased_by.is_(None), ROW.run_at <= NOW + LOOK_AHEAD)
# In RETURNING: notifies schedulers, after the commit, if the row is due soon.
NOTIFIED = case((_is_soon, func.pg_notify(DUE, "")))


def acked(at: ColumnElement[datetime]) -> dict[str, Any]:
    return {**freed(func.least(ROW.woken_at, at)), "attempts": 0, "last_error": None}


def freed(run_at: ColumnElement[Any]) -> dict[str, Any]:
    return {"run_at": run_at, "woken_at": None, "leased_by": None, "leased_until": None}


def _make_due() -> Insert:
    at = func.coalesce(bindparam("at", type_=INSTANT), NOW)
    upsert = insert(JOBS).values(kind=bindparam("kind"), subject=bindparam("subject"), run_at=at)
    wanted_at = upsert.excluded.run_at
    leased = ROW.leased_by.is_not(None)
    return upsert.on_conflict_do_update(
        index_elements=[ROW.kind, ROW.subject],
        set_={
            "run_at": case((leased, ROW.run_at), else_=func.least(ROW.run_at, wanted_at)),
            "woken_at": case((leased, func.least(ROW.woken_at, wanted_at))),
            "attempts": case((ROW.dead_at.is_not(None), 0), else_=ROW.attempts),
            "dead_at": None,
        },
    )


def _lease() -> Insert:
    fresh = {
        "run_at": NOW,  # an expired lease is found among the due jobs
        "leased_by": bindparam("holder"),
        "leased_until": NOW + bindparam("lease", type_=Interval),
        "attempts": 1,
    }
    upsert = insert(JOBS).values(kind=bindparam("kind"), subject=bindparam("subject"), **fresh)
    return upsert.on_conflict_do_update(
        index_elements=[ROW.kind, ROW.subject],
        set_={**fresh, "woken_at": None, "dead_at": None},
        where=UNLEASED,
    )


_requested = select(
    func.unnest(bindparam("ids", type_=ARRAY(BigInteger))).label("id"),
    func.unnest(bindparam("holders", type_=ARRAY(Text))).label("leased_by"),
    func.unnest(bindparam("ats", type_=ARRAY(INSTANT))).label("at"),
).subquery("requested")


def _lock_held() -> CTE:
    """Lock the rows of jobs that are still leased to their holders, with their next due instants."""
    is_held = and_(ROW.id == _requested.c.id, ROW.leased_by == _requested.c.leased_by)
    return (
        select(ROW.id, _requested.c.at)
        .join(_requested, is_held)
        .with_for_update(of=JOBS, skip_locked=True)
        .cte("held")
    )


_held = _lock_held()
MAKE_DUE = _make_due().returning(NOTIFIED)
LEASE = _lease().returning(*LEASED)
EXTEND = (
    update(JOBS)
    .where(ROW.id == _held.c.id)
    .values(leased_until=NOW + bindparam("lease", type_=Interval))
)
_acked = (
    update(JOBS)
    .where(ROW.id == _held.c.id)
    .values(acked(_held.c.at))
    .returning(ROW.id, NOTIFIED.label("notified"))
    .cte("acked")
)
# Jobs that were removed with their subjects have nothing to acknowledge; looking at each costs four round trips.
_removed = select(_requested.c.id, null()).where(
    ~select(ROW.id).where(ROW.id == _requested.c.id).exists()
)
ACK_UNLOCKED = select(_acked.c.id, _acked.c.notified).union_all(_removed)
