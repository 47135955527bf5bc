from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel


class VolumeState(StrEnum):
    """Where a volume stands; only a ready one is ever shown to callers."""

    CREATING = "creating"
    READY = "ready"
    DELETED = "deleted"  # gone for callers, its files kept for the sandboxes that have it


class VolumeRecord(BaseModel):
    """Everything the engine has to know of a volume to go on with it after a restart."""

    id: str
    name: str
    token: str
    size_mb: int
    created_at: datetime
    state: VolumeState = VolumeState.CREATING
