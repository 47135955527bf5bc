"""How much of one output may be written to the database after its beginning.

A token bucket. An output that exceeds it is held back in memory, and only a trickle of it is written while it lasts.
Its last bytes are written once it pauses, on credit, and when the command ends, in any case. So an output with the bound
B causes at most 3 x B of writes, and a trickle, however much the command writes:

    beginning  B/2     burst  B/2     credit  B     end  B/2
"""

import time
from collections.abc import Callable

TRICKLE = 64 * 1024
"""Bytes per second of one output that are written while it is held back."""

WRITE_COST = 1024
"""What a piece costs besides its bytes: its row and three index entries, and two updated rows."""

_MOST_DEBT = 2  # bursts

Clock = Callable[[], float]


class Allowance:
    """Bytes that may be written; negative where they were written on credit."""

    def __init__(self, burst: int, *, clock: Clock = time.monotonic) -> None:
        self._burst = burst
        self._left = float(burst)
        self._clock = clock
        self._refilled_at = clock()
        self._rate = float(TRICKLE)

    def refill(self, rate: float) -> float:
        """Add what was earned since the last call, at so many bytes per second; returns that."""
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
        return self._left > -_MOST_DEBT * self._burst

    def seconds_until(self, cost: int) -> float:
        """Estimate when this much is covered."""
        return max(0.0, (cost - self._left) / self._rate)
