from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from sandbox_client.models.wire import RequestModel, ResponseModel


class BackendRead(ResponseModel):
    """A provider of sandboxes."""

    name: str
    is_default: bool = Field(description="Whether sandboxes go there when nobody says where.")
    configured: bool = Field(
        description="Whether the server's settings name it; else its sandboxes only keep their records."
    )
    state: Literal["unknown", "up", "down"]
    state_reason: str | None
    seen_at: datetime | None = Field(description="When it last told what sandboxes it has.")
    drained: bool = Field(description="Whether it takes no new sandboxes.")
    capacity: int
    paused_takes_place: bool
    busy_until: datetime | None = Field(description="Until when it says that it has no room.")
    overflow_to: str | None = Field(description="Where sandboxes go that find no place there.")
    max_continuous_run_s: float | None = Field(
        description="How long it lets a sandbox run; it is paused and resumed before that."
    )
    strangers: int = Field(
        description="How many sandboxes of this installation it has that no record is about."
    )


class BackendUpdate(RequestModel):
    """What is to change."""

    drained: Annotated[
        bool,
        Field(
            strict=True,
            description="True: no new sandboxes; those that it has stay, and may pause and resume.",
        ),
    ]
