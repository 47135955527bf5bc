import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_server.db.notifications import Notifications
from sandbox_server.db.sandboxes import CHANGED


class Changes:
    """Wakes those who wait for a sandbox when its row has changed, on whichever server that was.

    A hint, never the truth: who is woken, or has waited long enough, reads the row.
    """

    def __init__(self, notifications: Notifications) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        notifications.listen(CHANGED, self._heard)

    @contextmanager
    def follow(self, sandbox_id: str) -> Iterator[asyncio.Event]:
        """Give what is set at each change; clear it before you read the row."""
        changed = asyncio.Event()
        self._waiting[sandbox_id].add(changed)
        try:
            yield changed
        finally:
            followers = self._waiting[sandbox_id]
            followers.discard(changed)
            if not followers:
                del self._waiting[sandbox_id]

    def _heard(self, sandbox_id: str | None) -> None:
        heard = (
            self._waiting.values() if sandbox_id is None else [self._waiting.get(sandbox_id, set())]
        )
        for followers in heard:
            for changed in followers:
                changed.set()
