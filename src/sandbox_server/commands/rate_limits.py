"""Rate limits of recording: how much output may be written to the database, and how many events per second are handled.

The allowance of an output is a token bucket. Output beyond it is held in memory, and only a trickle is written meanwhile.
Its last bytes are written on credit when it pauses, and in any case when the command ends. An output with the bound B
causes at most 3 x B of writes, and a trickle, however much the command writes:

    beginning  B/2     burst  B/2     credit  B     end  B/2
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Generic, TypeVar

TRICKLE = 64 * 1024
"""Bytes per second of one output that are written while it is held."""

WRITE_COST = 1024
"""Cost of a piece besides its bytes: its row, three index entries and two updated rows."""

_EVENTS_BURST = 256
_EVENTS_PER_S = 5000
_MAX_DEBT = 2  # bursts
_TRICKLE_BURST_S = 8  # of a tenant's share of the trickle
_MIN_RATE = 1.0

Clock = Callable[[], float]
CommandT = TypeVar("CommandT")


class TokenBucket:
    """A token bucket of bytes; negative after writes on credit."""

    def __init__(self, burst: int, *, clock: Clock = time.monotonic) -> None:
        self._burst = burst
        self._left = float(burst)
        self._clock = clock
        self._refilled_at = clock()
        self._rate = float(TRICKLE)

    def refill(self, rate: float) -> float:
        """Add the bytes earned since the last call at `rate` bytes per second, and return them."""
        now = self._clock()
        earned = min(self._burst - self._left, (now - self._refilled_at) * rate)
        self._left += earned
        self._refilled_at, self._rate = now, rate
        return earned

    def covers(self, cost: int) -> bool:
        return self._left >= cost

    def spend(self, cost: float) -> None:
        self._left -= cost

    @property
    def is_in_debt(self) -> bool:
        return self._left < 0

    @property
    def has_credit(self) -> bool:
        return self._left > -_MAX_DEBT * self._burst

    def seconds_until(self, cost: int) -> float:
        """Estimate when `cost` is covered."""
        return max(0.0, (cost - self._left) / self._rate)


class TenantAllowances(Generic[CommandT]):
    """Divides the trickle among tenants, and a tenant's share among its commands with held output."""

    def __init__(self, trickle: int, *, outputs: int, clock: Clock) -> None:
        self._trickle = trickle
        self._outputs = outputs  # of one command
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._throttled: set[str] = set()  # tenants that exceed their share
        self._held: defaultdict[str, set[CommandT]] = defaultdict(set)

    def mark_held(self, tenant_id: str, command: CommandT, *, is_held: bool) -> None:
        if is_held:
            self._held[tenant_id].add(command)
        elif tenant_id in self._held:
            self._held[tenant_id].discard(command)
            if not self._held[tenant_id]:
                del self._held[tenant_id]

    def list_held(self, tenant_id: str) -> list[CommandT]:
        return list(self._held.get(tenant_id, ()))

    def list_all_held(self) -> list[CommandT]:
        return [command for held in self._held.values() for command in held]

    def rate(self, tenant_id: str) -> float:
        """Return the rate at which an output of the tenant earns allowance."""
        share = self._trickle / len(self._throttled | {tenant_id})
        bucket = self._buckets.get(tenant_id)
        if bucket is None:
            burst = self._trickle * _TRICKLE_BURST_S
            bucket = self._buckets[tenant_id] = TokenBucket(burst, clock=self._clock)
        bucket.refill(share)
        held = self._held.get(tenant_id, ())
        if held or bucket.is_in_debt:
            self._throttled.add(tenant_id)
        else:
            self._throttled.discard(tenant_id)
        if bucket.is_in_debt:
            return _MIN_RATE
        return min(TRICKLE, share / (len(held) or 1) / self._outputs)

    def spend(self, tenant_id: str, cost: float) -> None:
        self._buckets[tenant_id].spend(cost)

    def forget(self, tenant_id: str) -> None:
        self._buckets.pop(tenant_id, None)
        self._throttled.discard(tenant_id)


class Throttle:
    """Keeps one stream of small events from using all of the process's time."""

    def __init__(self) -> None:
        self._count = 0
        self._since = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        """Count an event, and sleep if the rate is exceeded."""
        self._count += 1
        if self._count < _EVENTS_BURST:
            return
        now = asyncio.get_running_loop().time()
        delay = self._since + _EVENTS_BURST / _EVENTS_PER_S - now
        self._count, self._since = 0, now + max(0.0, delay)
        if delay > 0:
            await asyncio.sleep(delay)
