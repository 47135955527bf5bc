from dataclasses import dataclass, field
from datetime import timedelta

from sandbox_server.jobs.backoff import Backoff
from sandbox_server.jobs.statements import LOOK_AHEAD


@dataclass(frozen=True)
class Policy:
    """How a scheduler works: how much at once, how long, and how often again."""

    slots: int = 64
    lease: timedelta = timedelta(seconds=15)
    longest_run: timedelta = timedelta(minutes=10)  # what hangs is tried again after that
    max_attempts: int = 10
    backoff: Backoff = field(default_factory=Backoff)
    look_again: timedelta = LOOK_AHEAD
    grace: timedelta = timedelta(seconds=20)
