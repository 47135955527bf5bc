from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class LeasedJob:
    """A job that belongs to its holder until the lease expires."""

    id: int
    kind: str
    subject: str
    attempts: int
    leased_by: str  # differs for each lease, so that a late holder is not mistaken for a new one
    lag: timedelta = field(default=timedelta(), compare=False)
    """Time between the instant at which the job was due and its claim."""
    context: object | None = field(default=None, compare=False, repr=False)
    """Facts that the process which leased the job already has about the subject."""


@dataclass(frozen=True)
class DeadJob:
    """A job whose attempts all failed; it is not retried until it is requested again."""

    id: int
    kind: str
    subject: str
    attempts: int
    last_error: str
    dead_at: datetime


class ProviderSaturated(Exception):
    """The backend's limit of concurrent jobs is reached; the job is released without an attempt."""

    def __init__(self, backend: str) -> None:
        super().__init__(f"The limit of concurrent jobs at {backend} is reached.")
        self.backend = backend


class LeaseLost(Exception):
    """The lease expired and another holder has claimed the job."""

    def __init__(self, job: LeasedJob) -> None:
        super().__init__(
            f"The lease of {job.kind} {job.subject} expired, and another worker holds the job."
        )
