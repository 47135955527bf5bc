from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from sandbox_client.models.code import CodeError
from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import RequestModel, ResponseModel


class EventActor(ResponseModel):
    """The originator of an event; for an API key, its id."""

    kind: str
    id: str | None


class TimelineEntry(ResponseModel):
    """An event with cause, actor and reason. The fields of `data` depend on `type`."""

    seq: int
    type: str
    at: datetime
    cause: str | None
    actor: EventActor | None
    reason: str | None
    data: dict[str, Any]


class EventRead(TimelineEntry):
    """An event. The fields of `data` depend on `type`."""

    sandbox_id: str | None
    task_id: str | None = None


class JobState(StrEnum):
    """State of a job; a dead job has failed every attempt and is not retried."""

    DEAD = "dead"


class JobRead(ResponseModel):
    """A background job of the server."""

    id: int
    kind: str
    subject: str
    state: JobState
    attempts: int
    last_error: str
    dead_at: datetime


class QueueStats(ResponseModel):
    """Number of queued sandboxes, and the age of the oldest."""

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
    """Usage of backends and tenants; without the admin scope, of your own tenant only. Ended sandboxes are not counted."""

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
    """Whether the server can serve requests, and if not, why."""

    status: Literal["ready", "not-ready"]
    reasons: list[str]
    backends: list[BackendReadiness]


class Version(ResponseModel):
    version: str
    api: Literal["v1"] = "v1"


class LogEvent(EventRead):
    """An event in the log of a sandbox."""

    source: Literal["events"]


class LogRecord(ResponseModel):
    """Output, start, exit or gap of a command, terminal, service, agent or code execution. The fields depend on `type`."""

    source: Literal["command", "terminal", "service", "agent", "code"]
    seq: int
    sandbox_id: str
    command_id: str
    name: str | None = None
    type: Literal["started", "stdout", "stderr", "result", "error", "gap", "exit"]
    at: datetime
    offset: int | None = None
    text: str | None = None
    base64: str | None = None
    stream: Literal["stdout", "stderr"] | None = None
    size: int | None = None
    pid: int | None = None
    state: str | None = None
    exit_code: int | None = None
    number: int | None = None
    data: dict[str, Any] | None = None
    sizes: dict[str, int] | None = None
    error: CodeError | None = None
    reason: str | None = None


class LogGap(ResponseModel):
    """Entries between `after` and `oldest` were removed."""

    type: Literal["gap"]
    after: int
    oldest: int


class BackendRead(ResponseModel):
    """A backend: one provider of sandboxes."""

    name: str
    is_default: bool = Field(description="Whether it is used for requests that name no backend.")
    configured: bool = Field(
        description="Whether it is in the server's settings. If not, only the records of its sandboxes remain."
    )
    state: Literal["unknown", "up", "down"]
    state_reason: str | None
    seen_at: datetime | None = Field(
        description="Time of the last successful list of its sandboxes."
    )
    drained: bool = Field(description="Whether it accepts no new sandboxes.")
    capacity: int
    paused_takes_place: bool
    busy_until: datetime | None = Field(description="Until when it reported to be at its limit.")
    overflow_to: str | None = Field(
        description="Backend for sandboxes that find no free slot here."
    )
    max_continuous_run_s: float | None = Field(
        description="Maximum uninterrupted run time; sandboxes are paused and resumed before it ends."
    )
    strangers: int = Field(
        description="Number of unmanaged sandboxes: created by this installation, without a record."
    )


class BackendUpdate(RequestModel):
    """Fields to change."""

    drained: Annotated[
        bool,
        Field(
            strict=True,
            description="true: accept no new sandboxes. Existing ones stay and can be paused and resumed.",
        ),
    ]
