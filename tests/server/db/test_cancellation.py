"""Callers that are cancelled while the database works for them."""

import asyncio

import pytest
from sqlalchemy import event, func, select, text

from sandbox_server.db.models import Tenant
from sandbox_server.db.session import pool_use, without_transaction
from tests.engine.polling import until

_SLEEPING = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep(%'"
    " AND pid <> pg_backend_pid()"
)


@pytest.fixture
def broken_off(database):
    """Note the connections that the pool gives up."""
    broken_off = []
    event.listen(database.sync_engine.pool, "invalidate", lambda *told: broken_off.append(told))
    return broken_off


async def cancel_asleep(sessions, work):
    """Cancel it while the database sleeps for it."""
    task = asyncio.create_task(work())

    async def is_asleep():
        async with without_transaction(sessions) as session:
            return await session.scalar(_SLEEPING)

    await until(is_asleep)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation__rolls_back_and_reuses_the_connection(sessions, broken_off):
    async def work():
        async with sessions.begin() as session:
            session.add(Tenant(id="t" * 20, name="t", max_running=1, max_queued=1))
            await session.flush()
            await session.execute(select(func.pg_sleep(1)))

    await cancel_asleep(sessions, work)
    assert pool_use(sessions).used == 0
    assert broken_off == []
    async with sessions() as session:
        assert await session.get(Tenant, "t" * 20) is None


async def test_cancellation__a_statement_without_a_transaction_finishes(sessions, broken_off):
    async def work():
        async with without_transaction(sessions) as session:
            await session.scalar(select(func.pg_sleep(1)))

    await cancel_asleep(sessions, work)
    assert pool_use(sessions).used == 0
    assert broken_off == []


async def test_cancellation__a_statement_that_does_not_finish_is_aborted(sessions, broken_off):
    async def work():
        async with without_transaction(sessions) as session:
            await session.scalar(select(func.pg_sleep(600)))

    async with asyncio.timeout(60):
        await cancel_asleep(sessions, work)
    assert pool_use(sessions).used == 0
    assert len(broken_off) == 1
