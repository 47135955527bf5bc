from datetime import datetime
from enum import StrEnum

from sandbox_client.models.sandboxes import Timeout
from sandbox_client.models.wire import Labels, Name, RequestModel, ResponseModel


class SandboxFork(RequestModel):
    """What the copy is to have of its own; what is left out is as the original has it."""

    user_id: Name | None = None
    session_id: Name | None = None
    metadata: Labels | None = None
    timeout_s: Timeout | None = None


class SnapshotState(StrEnum):
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"


class SnapshotCreate(RequestModel):
    name: Name | None = None


class SnapshotRead(ResponseModel):
    """A sandbox as it was at one moment; its id is a template to create sandboxes from."""

    id: str
    sandbox_id: str
    backend: str
    name: str | None
    state: SnapshotState
    state_reason: str | None
    created_at: datetime


class MetricRead(ResponseModel):
    """What a sandbox used at one moment; memory and disk in bytes."""

    at: datetime
    cpu_count: int
    cpu_percent: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int
