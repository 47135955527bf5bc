from dataclasses import dataclass, field
from datetime import timedelta

from sandbox_server.jobs.backoff import Backoff
from sandbox_server.jobs.statements import LOOK_AHEAD


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
