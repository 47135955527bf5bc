import asyncio

from sqlalchemy import text

from sandbox_server.db.notifications import Notifications
from tests.engine.waiting import until

_END_LISTENER = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
)


async def _notify(sessions, channel, payload):
    async with sessions.begin() as session:
        await session.execute(
            text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload}
        )


async def test_each_listener_hears_its_channel_and_reads_anew_after_a_lost_connection(
    database, sessions
):
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    notifications = Notifications(database)
    notifications.listen("news", heard.put_nowait)
    notifications.listen("other", lambda payload: heard.put_nowait(payload and f"other {payload}"))
    running = asyncio.create_task(notifications.run())
    async with asyncio.timeout(60):
        assert [await heard.get(), await heard.get()] == [None, None]
        await _notify(sessions, "other", "one")
        await _notify(sessions, "news", "two")
        assert [await heard.get(), await heard.get()] == ["other one", "two"]

        async def ended():
            async with sessions.begin() as session:
                return await session.scalar(_END_LISTENER)

        await until(ended, timeout=60)
        assert [await heard.get(), await heard.get()] == [None, None]
        await _notify(sessions, "news", "three")
        assert await heard.get() == "three"
    running.cancel()
    await asyncio.wait([running])


async def test_listening_takes_no_connection_from_the_pool(database):
    notifications = Notifications(database)
    up = asyncio.Event()
    notifications.listen("news", lambda _: up.set())
    running = asyncio.create_task(notifications.run())
    async with asyncio.timeout(60):
        await up.wait()

    assert database.pool.checkedout() == 0
    running.cancel()
    await asyncio.wait([running])
