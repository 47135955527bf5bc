from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from sandbox_client.models.wire import RequestModel, ResponseModel


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
