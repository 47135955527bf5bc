from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import ResponseModel


class EventActor(ResponseModel):
    """Who did it; an API key is known by its id."""

    kind: str
    id: str | None


class TimelineEntry(ResponseModel):
    """Something that happened to a sandbox: what caused it, who did it, and why. What `data` tells depends on `type`."""

    seq: int
    type: str
    at: datetime
    cause: str | None
    actor: EventActor | None
    reason: str | None
    data: dict[str, Any]


class EventRead(TimelineEntry):
    """Something that happened. What `data` tells depends on `type`."""

    sandbox_id: str | None


class JobState(StrEnum):
    """What of jobs can be asked for: dead ones failed every attempt and are left alone."""

    DEAD = "dead"


class JobRead(ResponseModel):
    """Something that is to be done about a subject."""

    id: int
    kind: str
    subject: str
    state: JobState
    attempts: int
    last_error: str
    dead_at: datetime


class QueueStats(ResponseModel):
    """How many sandboxes wait for a place, and for how long the one that waits longest has done so."""

    depth: int
    oldest_age_s: float | None


class BackendStats(ResponseModel):
    name: str
    state: Literal["unknown", "up", "down"]
    state_reason: str | None
    drained: bool
    capacity: int
    taken: int
    busy_until: datetime | None
    sandboxes: dict[SandboxState, int]
    queue: QueueStats


class TenantStats(ResponseModel):
    name: str
    max_running: int
    max_queued: int
    taken: int
    sandboxes: dict[SandboxState, int]
    queue: QueueStats


class Stats(ResponseModel):
    """How full it is: of all tenants to an admin, else of your own. What has ended is not counted."""

    backends: list[BackendStats]
    tenants: list[TenantStats]
    jobs_dead: int | None


class Health(ResponseModel):
    status: Literal["alive"] = "alive"


class BackendReadiness(ResponseModel):
    name: str
    state: Literal["unknown", "up", "down"]
    drained: bool


class Readiness(ResponseModel):
    """Whether requests can be served, and if not, why."""

    status: Literal["ready", "not-ready"]
    reasons: list[str]
    backends: list[BackendReadiness]


class Version(ResponseModel):
    version: str
    api: Literal["v1"] = "v1"
