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

LOOK_EVERY = timedelta(seconds=2)
STALLED_AFTER = timedelta(seconds=20)

# What is read for those who are behind leaves the most connections to those who are not.
_READS_LIVE = 3
_READS_BEHIND = 2
_LOOK_ANYWAY_AFTER = timedelta(seconds=30)
_LOOK_PATIENCE = timedelta(seconds=10)
_LAST_WORDS = timedelta(seconds=1)


class StreamHub:
    """All who follow something at this server.

    What is said on the channel shortens the wait, and nothing depends on it: the counters of the logs that are followed
    are looked at every two seconds. Where they have grown and nothing at all was heard, all of them are read; else a
    stream is read now and then, in case a word was lost.
    """

    def __init__(
        self,
        sessions: Sessions,
        notifications: Notifications,
        *,
        look_every: timedelta = LOOK_EVERY,
        stalled_after: timedelta = STALLED_AFTER,
    ) -> None:
        self._sessions = sessions
        self._look_every = look_every
        self._stalled_after = stalled_after
        self._live = LogReader(sessions, at_once=_READS_LIVE)
        self._behind = LogReader(sessions, at_once=_READS_BEHIND)
        self._feeds: dict[Source, Feed] = {}
        self._by_topic: defaultdict[str, set[Feed]] = defaultdict(set)
        self._tasks: dict[Feed, asyncio.Task[None]] = {}
        self._followers: set[Follower] = set()
        self._has_heard = False
        self._ended = False
        notifications.listen(LOG_CHANNEL, self._heard)

    async def follow(
        self,
        source: Source,
        *,
        after: int | None = None,
        tail: int | None = None,
        cut: Callable[[], None] | None = None,
    ) -> LogFollower:
        """Follow a stream from its start, after that number, or with so many of its last.

        `cut` breaks the connection of one that takes nothing of what is sent.
        """
        if after is None and tail is not None:
            after = await self._behind.find_tail(source, count=tail)
        first = await self._behind.read(source, after=after or 0)
        return LogFollower(source, self, first=first, cut=cut)

    def end(self) -> None:
        """End all streams at once, since the server stops; who follows goes on at another, or after the start."""
        self._ended = True
        for follower in list(self._followers):
            follower.end()
        asyncio.get_running_loop().call_later(_LAST_WORDS.total_seconds(), self._cut_off_all)

    async def run(self) -> None:
        """Look after those who follow, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._look_every.total_seconds())
                self._tidy()
                await self._look()
        finally:
            self.end()
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def registered(self, follower: Follower) -> Iterator[None]:
        """Know of one who follows, as long as the block lasts."""
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
        """Take part in the feed of a stream, which is there as long as somebody does."""
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
        return await self._behind.read_at_last(source, after=position)

    def _open(self, source: Source, position: int) -> Feed:
        feed = Feed(source, self._live, position=position)
        self._feeds[source] = feed
        for topic in source.topic.split():
            self._by_topic[topic].add(feed)
        self._tasks[feed] = asyncio.create_task(feed.run(), name=f"feed {source.topic}")
        return feed

    def _close(self, feed: Feed) -> None:
        self._tasks.pop(feed).cancel()
        if self._feeds.get(feed.source) is feed:
            del self._feeds[feed.source]
        for topic in feed.source.topic.split():
            self._by_topic[topic].discard(feed)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def _heard(self, said: str | None) -> None:
        self._has_heard = True
        if said is None:
            for feed in self._tasks:
                feed.grow()
        else:
            for topic in said.split():
                for feed in self._by_topic.get(topic, ()):
                    feed.grow()

    def _tidy(self) -> None:
        stalled = asyncio.get_running_loop().time() - self._stalled_after.total_seconds()
        for feed in self._tasks:
            feed.window.age()
        for follower in list(self._followers):
            if follower.is_stalled(since=stalled):
                FOLLOWERS_CUT_OFF.inc()
                follower.cut_off()

    def _cut_off_all(self) -> None:
        for follower in list(self._followers):
            follower.cut_off()

    async def _look(self) -> None:
        """Have those feeds read on whose log has grown where nobody says so; now and then, where somebody does."""
        followed = {feed.source.tenant_id for feed in self._tasks}
        has_heard, self._has_heard = self._has_heard, False
        try:
            counters = await self._count(followed) if followed else {}
        except OUTAGES as error:
            log.warning("cannot see whether logs have grown error=%r", error)
            return
        long_ago = asyncio.get_running_loop().time() - _LOOK_ANYWAY_AFTER.total_seconds()
        for feed in self._tasks:
            counter = counters.get(feed.source.tenant_id)
            if counter != feed.seen_counter and (not has_heard or feed.read_at < long_ago):
                feed.seen_counter = counter
                feed.grow()

    async def _count(self, tenant_ids: set[str]) -> Mapping[str, int]:
        async with (
            asyncio.timeout(_LOOK_PATIENCE.total_seconds()),
            without_transaction(self._sessions) as session,
        ):
            return await EventRepository(session).count(tenant_ids)
