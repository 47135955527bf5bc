from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel


class VolumeState(StrEnum):
    """State of a volume; callers only see ready ones."""

    CREATING = "creating"
    READY = "ready"
    DELETED = "deleted"  # deleted for callers, but kept for sandboxes that have it mounted


class VolumeRecord(BaseModel):
    """State of a volume that an engine needs after a restart."""

    id: str
    name: str
    token: str
    size_mb: int
    created_at: datetime
    state: VolumeState = VolumeState.CREATING
