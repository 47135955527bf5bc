import asyncio

from sqlalchemy import text

from sandbox_server.db.notifications import Notifications
from tests.engine.polling import until

_LISTENERS = text(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
)


async def _notify(sessions, channel, payload):
    async with sessions.begin() as session:
        await session.execute(
            text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload}
        )


async def test_notifications__listeners_get_their_channel_and_reread_after_a_lost_connection(
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
                listener = await session.scalar(_LISTENERS)
                end = text("SELECT pg_terminate_backend(:pid)")
                return listener and await session.scalar(end, {"pid": listener})

        await until(ended, timeout=60)
        assert [await heard.get(), await heard.get()] == [None, None]
        await _notify(sessions, "news", "three")
        assert await heard.get() == "three"
    running.cancel()
    await asyncio.wait([running])


async def test_notifications__use_a_connection_outside_the_pool(database, sessions):
    up = asyncio.Event()
    notifications = Notifications(database)
    notifications.listen("news", lambda _: up.set())
    running = asyncio.create_task(notifications.run())
    async with asyncio.timeout(60):
        await up.wait()
    assert database.pool.checkedout() == 0

    running.cancel()
    await asyncio.wait([running])

    async def none_listens():
        async with sessions() as session:
            return not (await session.scalars(_LISTENERS)).all()

    assert await until(none_listens, timeout=60)
