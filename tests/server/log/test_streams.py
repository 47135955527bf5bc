"""Followers receive each event once, whenever they connect and however slowly they read."""

import asyncio
import random
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from sqlalchemy import text

from sandbox_server.db.models import Tenant
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.events import SERVER, Cause, Stopping
from sandbox_server.domain.ids import new_id
from sandbox_server.events.event_source import EventSource
from sandbox_server.log.blocks import WINDOW_BYTES
from sandbox_server.log.events import EventRepository
from sandbox_server.log.hub import CHECK_INTERVAL, StreamHub

PATIENCE_S = 10
SANDBOX = "s" * 20


@pytest.fixture
async def tenant_id(sessions):
    async with sessions.begin() as session:
        tenant = Tenant(id=new_id(), name="default", max_running=1, max_queued=1)
        session.add(tenant)
    return tenant.id


@pytest.fixture
def source(tenant_id):
    return EventSource(tenant_id=tenant_id)


@pytest.fixture
def append(sessions, tenant_id):
    """Append so many events in one transaction."""

    async def append(count=1, *, reason="It was time."):
        event = Stopping(sandbox_id=SANDBOX, cause=Cause.EXPIRY, actor=SERVER, reason=reason)
        async with sessions.begin() as session:
            await EventRepository(session).append(tenant_id, *[event] * count)

    return append


@asynccontextmanager
async def open_streams(database, *, check_interval=CHECK_INTERVAL, hears=True):
    """Run streams as one server does."""
    notifications = Notifications(database)
    streams = StreamHub(create_sessions(database), notifications, check_interval=check_interval)
    async with AsyncExitStack() as stack:
        for work in (streams.run, *([notifications.run] if hears else [])):
            task = asyncio.create_task(work())
            stack.push_async_callback(ended, task)
        yield streams


async def ended(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def streams(database):
    async with open_streams(database) as streams:
        yield streams


async def next_of(blocks):
    return await anext(blocks, None)


async def test_stream_hub__reconnecting_followers_receive_every_event_once(streams, source, append):
    total = 400
    chance = random.Random(7)

    async def write():
        written = 0
        while written < total:
            count = min(chance.choice([1, 1, 2, 5, 20]), total - written)
            await append(count)
            written += count
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random() / 50)

    async def follow(chance):
        got: list[int] = []
        while len(got) < total:
            following = await streams.follow(source, after=got[-1] if got else None)
            stays = chance.choice([1, 3, 10, 10**6])
            async with aclosing(following.blocks()) as blocks:
                async for block in blocks:
                    got += [item.id for item in block.items]
                    stays -= 1
                    if stays == 0 or len(got) >= total:
                        break
                    await asyncio.sleep(chance.choice([0, 0, 0.005, 0.05]))
        return got

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        reading = [group.create_task(follow(random.Random(seed))) for seed in range(25)]
    assert {tuple(task.result()) for task in reading} == {tuple(range(1, total + 1))}


async def test_stream_hub__a_follower_behind_the_window_reads_from_the_log(streams, source, append):
    large = "x" * 100_000
    count = 3 * WINDOW_BYTES // len(large)
    await append()
    slow = (await streams.follow(source)).blocks()
    quick = (await streams.follow(source)).blocks()
    async with aclosing(slow), aclosing(quick):
        got = [item.id for item in (await anext(slow)).items]
        await anext(quick)
        # From here on both follow what is live.
        await append()
        got += [item.id for item in (await anext(slow)).items]
        seen = (await anext(quick)).position
        for _ in range(count):
            await append(reason=large)
            seen = max(seen, (await anext(quick)).position)
        while got[-1] < count + 2:
            got += [item.id for item in (await anext(slow)).items]
    assert got == list(range(1, count + 3))
    assert seen == count + 2


async def test_stream_hub__events_without_a_notification_are_found_by_polling(
    database, source, append
):
    async with open_streams(database, check_interval=CHECK_INTERVAL / 20, hears=False) as streams:
        following = (await streams.follow(source)).blocks()
        async with aclosing(following):
            for number in (1, 2, 3):
                coming = asyncio.create_task(next_of(following))
                await append()
                assert [item.id for item in (await coming).items] == [number]


async def test_stream_hub__events_during_a_database_outage_are_sent_afterwards(
    database_url, sessions, source, append
):
    database = create_engine(f"{database_url}&application_name=streams")
    async with open_streams(database) as streams:
        following = (await streams.follow(source)).blocks()
        async with aclosing(following):
            await append()
            assert (await anext(following)).position == 1
            coming = asyncio.create_task(next_of(following))
            async with sessions.begin() as session:
                theirs = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'streams' AND datname = current_database()"
                )
                await session.execute(text(theirs))
            await append()
            assert (await coming).position == 2
    await database.dispose()


async def test_server_stop__ends_all_streams(streams, source, append):
    await append()
    follows = [(await streams.follow(source)).blocks() for _ in range(3)]
    for following in follows:
        await anext(following)
    waiting = [asyncio.create_task(next_of(following)) for following in follows]
    await append()
    assert [(await one).position for one in waiting] == [2, 2, 2]
    waiting = [asyncio.create_task(next_of(following)) for following in follows]
    streams.end()
    assert await asyncio.gather(*waiting) == [None, None, None]
    late = await streams.follow(source)
    assert [block async for block in late.blocks()] == []


@dataclass(frozen=True)
class Stuck:
    """A stream whose reads never finish."""

    tenant_id: str
    number: int
    begun: asyncio.Queue[int] = field(compare=False)
    topic = ""

    async def read(self, sessions, *, after, limit):
        self.begun.put_nowait(self.number)
        await asyncio.Event().wait()


async def test_stream_hub__no_tenant_uses_all_concurrent_reads(streams, source, append):
    await append()
    begun: asyncio.Queue[int] = asyncio.Queue()
    following = [asyncio.create_task(streams.follow(Stuck("other", n, begun))) for n in range(9)]
    await begun.get()
    async with asyncio.timeout(PATIENCE_S):  # less than a read may take
        assert not (await streams.follow(source)).is_over
    for one in following:
        one.cancel()
