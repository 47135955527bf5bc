import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_server.db.notifications import Notifications
from sandbox_server.log.events import LOG_CHANNEL


class LogNotifications:
    """Tells those who wait for a log that it has grown; a hint, and never the only way to find out."""

    def __init__(self, notifications: Notifications) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        notifications.listen(LOG_CHANNEL, self._heard)

    @contextmanager
    def follow(self, topic: str) -> Iterator[asyncio.Event]:
        """Follow a topic from now on; who has seen the event clears it."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        try:
            yield event
        finally:
            followers = self._waiting[topic]
            followers.discard(event)
            if not followers:
                del self._waiting[topic]

    def _heard(self, said: str | None) -> None:
        for topic in list(self._waiting) if said is None else said.split():
            for event in self._waiting.get(topic, ()):
                event.set()
