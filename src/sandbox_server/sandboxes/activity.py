import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.sandboxes.repositories.activity import ActivityRepository

log = logging.getLogger(__name__)

NOTE_EVERY = timedelta(seconds=10)

_LOOK_EVERY = timedelta(seconds=0.5)
_LOOKS_PER_IDLE_TIMEOUT = 4
_LATELY = 10
_MOST_REMEMBERED = 10_000


class ActivityTracker:
    """Records activity in sandboxes, which postpones their idle pause.

    Activity is stored in the database, where every server sees it; one statement records it for many sandboxes.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._held: Counter[str] = Counter()
        self._moved: set[str] = set()
        self._asked = asyncio.Event()
        self._touched: OrderedDict[str, float] = OrderedDict()
        self._fails = False

    @contextmanager
    def hold(self, row: Sandbox) -> Iterator[None]:
        """Record continuous activity while the block lasts."""
        self._held[row.id] += 1
        self._asked.set()
        try:
            yield
        finally:
            self._held[row.id] -= 1
            if not self._held[row.id]:
                del self._held[row.id]
            self.note(row)

    def note(self, row: Sandbox) -> None:
        """Record activity soon; cheap enough to call for every piece of data."""
        self._moved.add(row.id)
        self._asked.set()

    async def touch(self, row: Sandbox) -> None:
        """Record activity at once, unless it was recorded a moment ago."""
        now = asyncio.get_running_loop().time()
        lately = min(NOTE_EVERY, (row.idle_timeout or NOTE_EVERY * _LATELY) / _LATELY)
        touched = self._touched.get(row.id)
        if touched is not None and now - touched < lately.total_seconds():
            return
        await self._write([row.id])
        self._touched[row.id] = now
        self._touched.move_to_end(row.id)
        if len(self._touched) > _MOST_REMEMBERED:
            self._touched.popitem(last=False)

    async def run(self) -> None:
        """Write recorded activity and that of held sandboxes, until cancelled."""
        while True:
            await self._asked.wait()
            moved, self._moved = self._moved, set()
            try:
                pause = await self._write(moved | self._held.keys())
            except OUTAGES as error:
                self._moved |= moved
                self._complain(error)
                pause = _LOOK_EVERY
            else:
                self._fails = False
            if not self._held and not self._moved:
                self._asked.clear()
            await asyncio.sleep(pause.total_seconds())

    async def _write(self, sandbox_ids: Collection[str]) -> timedelta:
        """Record activity; returns the delay until the next write."""
        async with without_transaction(self._sessions) as session:
            shortest = await ActivityRepository(session).note(sandbox_ids, at_most_every=NOTE_EVERY)
        if shortest is None:
            return _LOOK_EVERY
        return min(_LOOK_EVERY, shortest / _LOOKS_PER_IDLE_TIMEOUT)

    def _complain(self, error: Exception) -> None:
        if not self._fails:
            log.warning("activity not recorded error=%r", error)
        self._fails = True
