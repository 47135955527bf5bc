import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with an upper bound, and jitter over the upper half."""

    first: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)

    def delay(self, attempts: int) -> timedelta:
        """Draw the delay after the given number of failed attempts."""
        doublings = min(max(attempts - 1, 0), 20)  # a larger exponent overflows timedelta
        bound = min(self.longest, self.first * 2.0**doublings)
        return bound * random.uniform(0.5, 1)  # noqa: S311 - jitter is no secret
