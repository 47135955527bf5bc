import random
from dataclasses import dataclass, field
from datetime import timedelta

from sandbox_server.jobs.statements import LOOK_AHEAD


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


@dataclass(frozen=True)
class Policy:
    """Concurrency, leases and retries of a scheduler."""

    slots: int = 64
    lease: timedelta = timedelta(seconds=15)
    longest_run: timedelta = timedelta(minutes=10)  # a hanging handler is retried after that
    max_attempts: int = 10
    backoff: Backoff = field(default_factory=Backoff)
    look_again: timedelta = LOOK_AHEAD
    grace: timedelta = timedelta(seconds=20)
