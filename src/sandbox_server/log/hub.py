import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.log.events import LOG_CHANNEL, EventRepository
from sandbox_server.log.feed import Feed
from sandbox_server.log.follower import Follower, LogFollower
from sandbox_server.log.reader import LogReader
from sandbox_server.log.source import Page, Source
from sandbox_server.metrics.instruments import FOLLOWERS, FOLLOWERS_CUT_OFF

log = logging.getLogger(__name__)

CHECK_INTERVAL = timedelta(seconds=2)
STALLED_AFTER = timedelta(seconds=20)

# Catching up uses fewer connections than live feeds.
_LIVE_READS = 3
_CATCH_UP_READS = 2
_MAX_READ_INTERVAL = timedelta(seconds=30)
_CHECK_TIMEOUT = timedelta(seconds=10)
_END_TIMEOUT = timedelta(seconds=1)


class StreamHub:
    """All followers of streams at this server.

    Notifications shorten the delay, but nothing depends on them: every two seconds the counters of followed logs are checked.
    If they have advanced without any notification, all feeds are read. Otherwise each feed is read now and then, in case a
    notification was lost.
    """

    def __init__(
        self,
        sessions: Sessions,
        notifications: Notifications,
        *,
        check_interval: timedelta = CHECK_INTERVAL,
        stalled_after: timedelta = STALLED_AFTER,
    ) -> None:
        self._sessions = sessions
        self._check_interval = check_interval
        self._stalled_after = stalled_after
        self._live = LogReader(sessions, at_once=_LIVE_READS)
        self._catch_up = LogReader(sessions, at_once=_CATCH_UP_READS)
        self._feeds: dict[Source, Feed] = {}
        self._by_topic: defaultdict[str, set[Feed]] = defaultdict(set)
        self._tasks: dict[Feed, asyncio.Task[None]] = {}
        self._followers: set[Follower] = set()
        self._was_notified = False
        self._ended = False
        notifications.listen(LOG_CHANNEL, self._on_notification)

    async def follow(
        self,
        source: Source,
        *,
        after: int | None = None,
        tail: int | None = None,
        cut: Callable[[], None] | None = None,
    ) -> LogFollower:
        """Follow a stream from its start, after a number, or from its last `tail` items.

        `cut` closes the connection of a client that does not read.
        """
        if after is None and tail is not None:
            after = await self._catch_up.find_tail(source, count=tail)
        first = await self._catch_up.read(source, after=after or 0)
        return LogFollower(source, self, first=first, cut=cut)

    def end(self) -> None:
        """End all streams because the server stops. Clients resume them at another server or after the restart."""
        self._ended = True
        for follower in list(self._followers):
            follower.end()
        asyncio.get_running_loop().call_later(_END_TIMEOUT.total_seconds(), self._disconnect_all)

    async def run(self) -> None:
        """Serve the followers until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._check_interval.total_seconds())
                self._disconnect_stalled()
                await self._check_counters()
        finally:
            self.end()
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def registered(self, follower: Follower) -> Iterator[None]:
        """Register a follower until the block ends."""
        if self._ended:
            follower.end()
        self._followers.add(follower)
        FOLLOWERS.inc()
        try:
            yield
        finally:
            FOLLOWERS.dec()
            self._followers.discard(follower)

    @contextmanager
    def joined(self, source: Source, position: int) -> Iterator[Feed]:
        """Join the feed of a stream, which exists while it has followers."""
        feed = self._feeds.get(source)
        if feed is None or feed.over:
            feed = self._open(source, position)
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if not feed.followers:
                self._close(feed)

    async def read_on(self, source: Source, position: int) -> Page:
        return await self._catch_up.read_with_retry(source, after=position)

    def _open(self, source: Source, position: int) -> Feed:
        feed = Feed(source, self._live, position=position, on_topic=self._change_topic)
        self._feeds[source] = feed
        self._subscribe(feed)
        self._tasks[feed] = asyncio.create_task(feed.run(), name=f"feed {source.topic}")
        return feed

    def _close(self, feed: Feed) -> None:
        self._tasks.pop(feed).cancel()
        if self._feeds.get(feed.source) is feed:
            del self._feeds[feed.source]
        self._unsubscribe(feed)

    def _change_topic(self, feed: Feed, topic: str) -> None:
        """Follow other topics, and read once more: what was announced meanwhile was not heard."""
        self._unsubscribe(feed)
        feed.topic = topic
        self._subscribe(feed)
        feed.schedule_read()

    def _subscribe(self, feed: Feed) -> None:
        for topic in feed.topic.split():
            self._by_topic[topic].add(feed)

    def _unsubscribe(self, feed: Feed) -> None:
        for topic in feed.topic.split():
            self._by_topic[topic].discard(feed)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def _on_notification(self, topics: str | None) -> None:
        self._was_notified = True
        if topics is None:
            for feed in self._tasks:
                feed.schedule_read()
        else:
            for topic in topics.split():
                for feed in self._by_topic.get(topic, ()):
                    feed.schedule_read()

    def _disconnect_stalled(self) -> None:
        stalled = asyncio.get_running_loop().time() - self._stalled_after.total_seconds()
        for feed in self._tasks:
            feed.window.age()
        for follower in list(self._followers):
            if follower.is_stalled(since=stalled):
                FOLLOWERS_CUT_OFF.inc()
                follower.disconnect()

    def _disconnect_all(self) -> None:
        for follower in list(self._followers):
            follower.disconnect()

    async def _check_counters(self) -> None:
        """Schedule reads of feeds whose log has grown without a notification."""
        followed = {feed.source.tenant_id for feed in self._tasks}
        was_notified, self._was_notified = self._was_notified, False
        try:
            counters = await self._count(followed) if followed else {}
        except OUTAGES as error:
            log.warning("cannot check the counters of logs error=%r", error)
            return
        oldest = asyncio.get_running_loop().time() - _MAX_READ_INTERVAL.total_seconds()
        for feed in self._tasks:
            counter = counters.get(feed.source.tenant_id)
            if counter != feed.seen_counter and (not was_notified or feed.read_at < oldest):
                feed.seen_counter = counter
                feed.schedule_read()

    async def _count(self, tenant_ids: set[str]) -> Mapping[str, int]:
        async with (
            asyncio.timeout(_CHECK_TIMEOUT.total_seconds()),
            without_transaction(self._sessions) as session,
        ):
            return await EventRepository(session).count(tenant_ids)
