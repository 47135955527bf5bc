import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandbox_server.domain.access import Caller

_TTL_SECONDS = 0.5
_PURGE_AT = 1000

Found = TypeVar("Found", bound=Caller)


@dataclass(frozen=True)
class _CacheEntry(Generic[Found]):
    caller: Found
    expires_at: float


class CallerCache(Generic[Found]):
    """Finds callers by the hash of their secret, and caches them for half a second; misses are not cached.

    Concurrent lookups are limited, so that a flood of invalid secrets does not exhaust the database pool.
    """

    def __init__(
        self,
        look_up: Callable[[bytes], Awaitable[Found]],
        *,
        limit: asyncio.Semaphore,
        clock: Callable[[], float],
    ) -> None:
        self._look_up = look_up
        self._limit = limit
        self._clock = clock
        self._entries: dict[bytes, _CacheEntry[Found]] = {}

    async def find(self, secret_hash: bytes) -> Found:
        return await self.find_any([secret_hash], lambda: self._look_up(secret_hash))

    async def find_any(
        self,
        secret_hashes: Sequence[bytes],
        look_up: Callable[[], Awaitable[Found]],
        *,
        matches: Callable[[Found], bool] = lambda _: True,
    ) -> Found:
        """Find a matching caller with one of these secrets, with at most one lookup for all of them."""
        if (cached := self._first_cached(secret_hashes, matches)) is not None:
            return cached
        async with self._limit:
            # An earlier request with the same secret may have looked it up meanwhile.
            if (cached := self._first_cached(secret_hashes, matches)) is not None:
                return cached
            expires_at, entries = self._clock() + _TTL_SECONDS, self._entries
            caller = await look_up()
            if len(entries) >= _PURGE_AT:
                self._purge(entries)
            entries[caller.secret_hash] = _CacheEntry(caller, expires_at)
            return caller

    def clear(self) -> None:
        self._entries = {}  # a lookup that is in progress stores its result in the old dictionary

    def _purge(self, entries: dict[bytes, _CacheEntry[Found]]) -> None:
        # Most tickets are never used again once their page is closed.
        now = self._clock()
        for secret_hash in [each for each, entry in entries.items() if entry.expires_at <= now]:
            del entries[secret_hash]

    def _first_cached(
        self, secret_hashes: Sequence[bytes], matches: Callable[[Found], bool]
    ) -> Found | None:
        cached = (self._find_cached(secret_hash) for secret_hash in secret_hashes)
        return next((caller for caller in cached if caller is not None and matches(caller)), None)

    def _find_cached(self, secret_hash: bytes) -> Found | None:
        entry = self._entries.get(secret_hash)
        if entry is None:
            return None
        if self._clock() < entry.expires_at:
            return entry.caller
        del self._entries[secret_hash]
        return None
