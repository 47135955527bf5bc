import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Backoff:
    """How long to wait before the next attempt: twice as long each time, up to a bound.

    The wait is drawn from the upper half, so that what failed together does not return together.
    """

    first: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)

    def delay(self, attempts: int) -> timedelta:
        """Draw the wait after so many failed attempts."""
        doublings = min(max(attempts - 1, 0), 20)  # far enough, and no timedelta overflows
        bound = min(self.longest, self.first * 2.0**doublings)
        return bound * random.uniform(0.5, 1)  # noqa: S311 - nobody gains by guessing it
