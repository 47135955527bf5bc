import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandbox_server.domain.access import Caller

_TRUSTED_SECONDS = 0.5
_MANY = 1000

Found = TypeVar("Found", bound=Caller)


@dataclass(frozen=True)
class _Known(Generic[Found]):
    caller: Found
    until: float


class CallerCache(Generic[Found]):
    """Finds whose a secret is, by its hash; what was found is trusted for half a second, what was not never.

    Few are looked up at a time, so that a flood of wrong secrets leaves the database's connections to others.
    """

    def __init__(
        self,
        look_up: Callable[[bytes], Awaitable[Found]],
        *,
        at_once: asyncio.Semaphore,
        clock: Callable[[], float],
    ) -> None:
        self._look_up = look_up
        self._at_once = at_once
        self._clock = clock
        self._known: dict[bytes, _Known[Found]] = {}

    async def find(self, secret_hash: bytes) -> Found:
        return await self.find_any([secret_hash], lambda: self._look_up(secret_hash))

    async def find_any(
        self,
        secret_hashes: Sequence[bytes],
        look_up: Callable[[], Awaitable[Found]],
        *,
        fits: Callable[[Found], bool] = lambda _: True,
    ) -> Found:
        """Find a caller that fits and has one of these secrets, by at most one lookup for all of them."""
        if (trusted := self._first_trusted(secret_hashes, fits)) is not None:
            return trusted
        async with self._at_once:
            # Of many requests with the same secret, the first has looked it up by now.
            if (trusted := self._first_trusted(secret_hashes, fits)) is not None:
                return trusted
            until, remembered = self._clock() + _TRUSTED_SECONDS, self._known
            caller = await look_up()
            if len(remembered) >= _MANY:
                self._drop_lapsed(remembered)
            remembered[caller.secret_hash] = _Known(caller, until=until)
            return caller

    def forget(self) -> None:
        """Look all of them up anew."""
        self._known = {}  # a lookup that is under way puts what it found into the old one

    def _drop_lapsed(self, remembered: dict[bytes, _Known[Found]]) -> None:
        # Most tickets are never seen again once their page is closed.
        now = self._clock()
        for secret_hash in [each for each, known in remembered.items() if known.until <= now]:
            del remembered[secret_hash]

    def _first_trusted(
        self, secret_hashes: Sequence[bytes], fits: Callable[[Found], bool]
    ) -> Found | None:
        found = (self._trusted(each) for each in secret_hashes)
        return next((one for one in found if one is not None and fits(one)), None)

    def _trusted(self, secret_hash: bytes) -> Found | None:
        known = self._known.get(secret_hash)
        if known is None:
            return None
        if self._clock() < known.until:
            return known.caller
        del self._known[secret_hash]
        return None
