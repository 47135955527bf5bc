import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from sandbox_server.db.locks import Locks, NotFree
from sandbox_server.db.session import create_engine, create_sessions

LONG = timedelta(seconds=30)
SHORT = timedelta(seconds=0.05)


@pytest.fixture
async def locks(sessions):
    locks = Locks(sessions)
    yield locks
    await locks.close()


@pytest.fixture
async def elsewhere(database_url):
    """Hold names as another server does."""
    engine = create_engine(database_url)
    locks = Locks(create_sessions(engine))
    yield locks
    await locks.close()
    await engine.dispose()


async def is_free(locks, name):
    try:
        async with locks.hold(name, wait=SHORT):
            return True
    except NotFree:
        return False


async def test_lock__is_held_by_one_holder_across_servers(locks, elsewhere):
    async with locks.hold("a", wait=LONG):
        assert not await is_free(locks, "a")
        assert not await is_free(elsewhere, "a")
        assert await is_free(elsewhere, "b")
    assert await is_free(elsewhere, "a")
    assert await is_free(locks, "a")


async def test_lock__a_waiter_gets_it_when_it_is_released(locks, elsewhere):
    held = asyncio.Event()

    async def wait():
        async with elsewhere.hold("a", wait=LONG):
            held.set()

    async with locks.hold("a", wait=LONG):
        waiting = asyncio.create_task(wait())
        assert not await is_free(elsewhere, "a")
        assert not held.is_set()
    async with asyncio.timeout(20):
        await waiting


async def test_lock__a_cancelled_waiter_leaves_it_free(locks, elsewhere):
    for steps in range(12):
        taking = asyncio.create_task(is_free(locks, "a"))
        for _ in range(steps):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        async with elsewhere.hold("a", wait=LONG):
            pass


async def test_lock__is_released_when_the_holders_connection_ends(locks, elsewhere, sessions):
    async with locks.hold("a", wait=LONG):
        async with sessions.begin() as session:
            await session.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks"
                    " WHERE locktype = 'advisory' AND objsubid = 2 AND database ="
                    " (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            )
        async with elsewhere.hold("a", wait=LONG):
            pass
    async with locks.hold("a", wait=LONG):
        pass


async def test_lock__all_locks_of_a_server_take_one_connection(database, locks):
    async with locks.hold("a", wait=LONG), locks.hold("b", wait=LONG):
        assert database.pool.checkedout() == 0
