import asyncio

from sqlalchemy import text

_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def waiting_for_a_lock(sessions):
    """Return when somebody waits for what another transaction holds."""
    async with asyncio.timeout(10), sessions() as session:
        while not await session.scalar(_WAITING):
            await session.rollback()
