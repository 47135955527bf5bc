import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sandbox_tools.agent_server.event_encoding import encode_event

_MAX_BYTES = 2 << 20


class Transcript:
    """Numbered events of a session; the newest are kept for clients that reconnect.

    Numbers start at the current time in milliseconds, so those of an earlier agent server are lower: a client that reconnects with
    one of them gets a gap event, and never mistakes new events for old ones.
    """

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        self._next = time.time_ns() // 1_000_000
        self._most_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[int, bytes] = {}
        self._trimmed = False
        self._changed = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._next - 1

    def append(self, event: Mapping[str, Any]) -> None:
        encoded = encode_event({"seq": self._next, **event})
        self._kept[self._next] = encoded
        self._next += 1
        self._bytes += len(encoded)
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            self._bytes -= len(self._kept.pop(self._oldest))
            self._trimmed = True
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self, after: int | None = None) -> AsyncIterator[bytes]:
        """Yield the events after a number, or all that are kept, then new ones."""
        if after is None:
            after = 0 if self._trimmed else self._oldest - 1
        while True:
            if not self._oldest - 1 <= after <= self.last:
                yield encode_event({"type": "gap", "after": after, "until": self._oldest - 1})
                after = self._oldest - 1
            elif after < self.last:
                after += 1
                yield self._kept[after]
            else:
                await self._changed.wait()

    @property
    def _oldest(self) -> int:
        return next(iter(self._kept), self._next)
