from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class LeasedJob:
    """A job that is its holder's until the lease lapses."""

    id: int
    kind: str
    subject: str
    attempts: int
    leased_by: str  # differs for each lease, so that a late holder is not taken for a new one
    lag: timedelta = field(
        default=timedelta(), compare=False
    )  # between when it was due and the claim


@dataclass(frozen=True)
class DeadJob:
    """A job that is left alone until it is wanted again, since every attempt failed."""

    id: int
    kind: str
    subject: str
    attempts: int
    last_error: str
    dead_at: datetime


class ProviderSaturated(Exception):
    """As many jobs as may wait for this backend at once do: the job is given back untried."""

    def __init__(self, backend: str) -> None:
        super().__init__(f"As many jobs wait for {backend} as may at once.")
        self.backend = backend


class LeaseLost(Exception):
    """The lease had lapsed and another holder has taken the job over."""

    def __init__(self, job: LeasedJob) -> None:
        super().__init__(f"The lease of {job.kind} {job.subject} has lapsed and is another's now.")
