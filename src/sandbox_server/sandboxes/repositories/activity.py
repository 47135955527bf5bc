from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import ARRAY, Interval, Text, any_, bindparam, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql import Select

from sandbox_server.db.models import TABLES
from sandbox_server.domain.state import State, Target

# Also during a pause for the provider's longest run, which continues the use afterwards.
_AWAKE = (State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING)


class ActivityRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def note(
        self, sandbox_ids: Collection[str], *, at_most_every: timedelta
    ) -> timedelta | None:
        """Record activity, at most at the given interval per sandbox; returns the shortest idle timeout.

        Sandboxes with a short idle timeout are recorded more often.
        """
        parameters = {"sandbox_ids": sorted(sandbox_ids), "at_most_every": at_most_every}
        shortest: timedelta | None = await self._session.scalar(_NOTE, parameters)
        return shortest


def _note() -> Select[tuple[timedelta | None]]:
    table = TABLES["sandboxes"]
    now = func.clock_timestamp()
    selected = table.c.id == any_(bindparam("sandbox_ids", type_=ARRAY(Text)))
    tenth = table.c.idle_timeout.op("/")(literal(10))
    often = func.least(bindparam("at_most_every", type_=Interval), tenth)
    is_new = or_(table.c.last_activity_at.is_(None), table.c.last_activity_at + often <= now)
    is_awake = (table.c.target == Target.RUNNING) & table.c.state.in_(_AWAKE)
    # Locked in the order of ids, or two servers could deadlock.
    due = select(table.c.id).where(selected, is_awake, is_new).order_by(table.c.id)
    held = due.with_for_update(key_share=True).cte("held")
    noted = update(table).where(table.c.id == held.c.id).values(last_activity_at=now)
    return select(func.min(table.c.idle_timeout)).where(selected).add_cte(noted.cte("noted"))


_NOTE = _note()
