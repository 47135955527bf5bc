from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import Told


class EventActor(Told):
    """Who did it; an API key is known by its id."""

    kind: str
    id: str | None


class EventRead(Told):
    """Something that happened, with what caused it, who did, and why. What else is told depends on `type`."""

    seq: int
    type: str
    at: datetime
    sandbox_id: str | None
    cause: str | None
    actor: EventActor | None
    reason: str | None
    data: dict[str, Any]


class JobState(StrEnum):
    DUE = "due"
    LEASED = "leased"
    DEAD = "dead"
    RESTING = "resting"


class JobRead(Told):
    """Something to be done about a subject: due, in work, given up for now, or with nothing to do."""

    id: int
    kind: str
    subject: str
    state: JobState
    run_at: datetime | None
    leased_until: datetime | None
    attempts: int
    last_error: str | None
    dead_at: datetime | None


class QueueStats(Told):
    """How many sandboxes wait for a place, and for how long the one that waits longest has done so."""

    depth: int
    oldest_age_s: float | None


class BackendStats(Told):
    name: str
    state: Literal["unknown", "up", "down"]
    state_reason: str | None
    drained: bool
    capacity: int
    taken: int
    busy_until: datetime | None
    sandboxes: dict[SandboxState, int]
    queue: QueueStats


class TenantStats(Told):
    name: str
    max_running: int
    max_queued: int
    taken: int
    sandboxes: dict[SandboxState, int]
    queue: QueueStats


class Stats(Told):
    """How full it is. Sandboxes that have ended are not counted."""

    backends: list[BackendStats]
    tenants: list[TenantStats]
    jobs_dead: int | None


class Health(Told):
    status: Literal["alive"] = "alive"


class BackendReadiness(Told):
    name: str
    state: Literal["unknown", "up", "down"]
    drained: bool
    reason: str | None


class Readiness(Told):
    """Whether requests can be served, and if not, why."""

    status: Literal["ready", "not-ready"]
    reasons: list[str]
    backends: list[BackendReadiness]


class Version(Told):
    version: str
    api: Literal["v1"] = "v1"
