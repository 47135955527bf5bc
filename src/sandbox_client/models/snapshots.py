from datetime import datetime
from enum import StrEnum

from sandbox_client.models.sandboxes import Timeout
from sandbox_client.models.wire import Labels, Name, RequestModel, ResponseModel


class SandboxFork(RequestModel):
    """Parameters of the copy; omitted fields are taken from the original."""

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
    """A snapshot of a sandbox. Use its id as `template` to create sandboxes from it."""

    id: str
    sandbox_id: str
    backend: str
    name: str | None
    state: SnapshotState
    state_reason: str | None
    created_at: datetime


class MetricRead(ResponseModel):
    """Resource usage of a sandbox at one time; memory and disk in bytes."""

    at: datetime
    cpu_count: int
    cpu_percent: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int
