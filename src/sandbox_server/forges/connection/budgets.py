"""Rate limits of forges as rows that all servers honour.

row `core`, `graphql`, …   the quota as the forge last reported it
row `all`                  a secondary limit: nothing is sent until it ends
row `writes`               our own: one after the other, 1 s apart, 80 a minute, 500 an hour
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.locks import Locks, NotFree
from sandbox_server.db.models import ForgeBudget
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import ForgeLimited
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.forges.connection.answers import Limits, pause_after

WRITES_PER_MINUTE = 80
WRITES_PER_HOUR = 500
WRITE_INTERVAL = timedelta(seconds=1)

_ALL, _WRITES = "all", "writes"
_WAITS_FOR_WRITE = timedelta(seconds=20)
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_NO_TIME = timedelta()


class Budgets:
    """Keeps requests within the limits of a forge, over all servers of the database."""

    def __init__(
        self, sessions: Sessions, locks: Locks, *, write_interval: timedelta = WRITE_INTERVAL
    ) -> None:
        self._sessions = sessions
        self._locks = locks
        self._interval = write_interval

    @asynccontextmanager
    async def spend(
        self, forge_id: str, forge: str, *, account: str, call: str, write: bool
    ) -> AsyncIterator[None]:
        """Wait for the turn of a write, and raise `ForgeLimited` where the forge wants no requests now."""
        if not write:
            await self._require_open(forge_id, forge, account, call)
            yield
            return
        async with self._turn(forge_id, forge, account):
            await self._require_open(forge_id, forge, account, call)
            wait = await self._reserve(forge_id, forge, account)
            await asyncio.sleep(wait.total_seconds())
            yield

    async def record(self, forge_id: str, *, account: str, limits: Limits, reason: str) -> None:
        """Store what an answer says of the quota, for all servers."""
        if not limits.is_known:
            return
        async with self._sessions.begin() as session:
            row, now = await _lock(session, forge_id, account, limits.resource)
            row.quota, row.remaining, row.reset_at = (
                limits.quota,
                limits.remaining,
                limits.reset_at,
            )
            if not limits.is_exceeded:
                row.strikes = 0
                return
            is_primary = limits.remaining == 0
            paused = row if is_primary else (await _lock(session, forge_id, account, _ALL))[0]
            paused.paused_until = now + pause_after(limits, now=now, strikes=row.strikes)
            paused.paused_reason = storable(reason)[:500]
            row.strikes += 1

    @asynccontextmanager
    async def _turn(self, forge_id: str, forge: str, account: str) -> AsyncIterator[None]:
        name = f"forge-writes/{forge_id}/{account}"
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._locks.hold(name, wait=_WAITS_FOR_WRITE))
            except NotFree:
                raise ForgeLimited(
                    forge, "Other writes are in progress.", retry_after=_WAITS_FOR_WRITE
                ) from None
            yield

    async def _require_open(self, forge_id: str, forge: str, account: str, resource: str) -> None:
        async with self._sessions() as session:
            paused = await session.execute(
                select(ForgeBudget, func.clock_timestamp())
                .where(
                    ForgeBudget.forge_id == forge_id,
                    ForgeBudget.account == account,
                    ForgeBudget.resource.in_((resource, _ALL)),
                    ForgeBudget.paused_until > func.clock_timestamp(),
                )
                .order_by(ForgeBudget.paused_until.desc())
            )
            found = paused.first()
        if found is not None:
            row, now = found
            raise ForgeLimited(
                forge, f"Paused: {row.paused_reason}", retry_after=row.paused_until - now
            )

    async def _reserve(self, forge_id: str, forge: str, account: str) -> timedelta:
        """Count one write; returns how long to wait until it may be sent."""
        async with self._sessions.begin() as session:
            row, now = await _lock(session, forge_id, account, _WRITES)
            _begin_windows(row, now)
            for count, most, ends in _windows(row):
                if count >= most:
                    said = f"{most} writes were sent in a short time, which is the limit."
                    raise ForgeLimited(forge, said, retry_after=ends - now)
            at = max(now, (row.last_write_at or now - self._interval) + self._interval)
            row.last_write_at = at
            row.writes_minute += 1
            row.writes_hour += 1
        return max(at - now, _NO_TIME)


def _begin_windows(row: ForgeBudget, now: datetime) -> None:
    if row.minute_began_at is None or row.minute_began_at + _MINUTE <= now:
        row.minute_began_at, row.writes_minute = now, 0
    if row.hour_began_at is None or row.hour_began_at + _HOUR <= now:
        row.hour_began_at, row.writes_hour = now, 0


def _windows(row: ForgeBudget) -> tuple[tuple[int, int, datetime], ...]:
    assert row.minute_began_at is not None
    assert row.hour_began_at is not None
    return (
        (row.writes_minute, WRITES_PER_MINUTE, row.minute_began_at + _MINUTE),
        (row.writes_hour, WRITES_PER_HOUR, row.hour_began_at + _HOUR),
    )


async def _lock(
    session: AsyncSession, forge_id: str, account: str, resource: str
) -> tuple[ForgeBudget, datetime]:
    key: dict[str, Any] = {"forge_id": forge_id, "account": account, "resource": resource}
    await session.execute(insert(ForgeBudget).values(**key).on_conflict_do_nothing())
    found = await session.execute(
        select(ForgeBudget, func.clock_timestamp()).filter_by(**key).with_for_update()
    )
    row, now = found.one()
    return row, now
