import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_server.db.notifications import Notifications
from sandbox_server.log.events import LOG_CHANNEL


class LogNotifications:
    """Wakes waiters when a log grows. Only a hint: waiters also poll."""

    def __init__(self, notifications: Notifications) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        notifications.listen(LOG_CHANNEL, self._on_notification)

    @contextmanager
    def follow(self, topic: str) -> Iterator[asyncio.Event]:
        """Follow a topic; the caller clears the event."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        try:
            yield event
        finally:
            followers = self._waiting[topic]
            followers.discard(event)
            if not followers:
                del self._waiting[topic]

    def _on_notification(self, topics: str | None) -> None:
        for topic in list(self._waiting) if topics is None else topics.split():
            for event in self._waiting.get(topic, ()):
                event.set()
