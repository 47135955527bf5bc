import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.db.notifications import Notifications
from sandbox_server.log.events import SANDBOX_CHANNEL


class Follower:
    """Waits for changes of one row."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._committed: Sandbox | None = None

    async def wait(self, *, longest: timedelta) -> Sandbox | None:
        """Wait for a change; returns the row if this process committed it, and None if it has to be read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(longest.total_seconds()):
                await self._changed.wait()
        self._changed.clear()
        committed, self._committed = self._committed, None
        return committed

    def wake(self, row: Sandbox | None = None) -> None:
        self._committed = row
        self._changed.set()


class Changes:
    """Wakes followers of a row when any server has changed it.

    A notification is a hint: followers read the row when they are woken, and poll besides. Rows that this process
    commits are passed on directly; it ignores notifications of its own commits by their name.
    """

    def __init__(self, notifications: Notifications) -> None:
        self.name = secrets.token_hex(4)
        self._waiting: defaultdict[str, set[Follower]] = defaultdict(set)
        notifications.listen(SANDBOX_CHANNEL, self._on_notification)

    @contextmanager
    def follow(self, row_id: str) -> Iterator[Follower]:
        """Follow a row's changes while the block lasts."""
        follower = Follower()
        self._waiting[row_id].add(follower)
        try:
            yield follower
        finally:
            followers = self._waiting[row_id]
            followers.discard(follower)
            if not followers:
                del self._waiting[row_id]

    def publish(self, row: Sandbox) -> None:
        """Pass a row that this process has committed to its followers."""
        for follower in self._waiting.get(row.id, ()):
            follower.wake(row)

    def _on_notification(self, payload: str | None) -> None:
        if payload is None:
            self._wake(*self._waiting)
            return
        row_id, _, by = payload.partition("/")
        if by != self.name:
            self._wake(row_id)

    def _wake(self, *row_ids: str) -> None:
        for row_id in row_ids:
            for follower in self._waiting.get(row_id, ()):
                follower.wake()
