from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from sandbox_client.models.wire import Name, RequestModel, ResponseModel

_LONGEST = timedelta(hours=12)


class TicketScope(StrEnum):
    """What a ticket permits; `sandboxes` includes typing into terminals."""

    READ = "read"
    SANDBOXES = "sandboxes"


class TicketCreate(RequestModel):
    """Parameters of a new ticket."""

    scope: TicketScope = TicketScope.READ
    sandbox_id: Annotated[
        Name | None,
        Field(description="Restrict the ticket to this sandbox. Default: all of your sandboxes."),
    ] = None
    ttl_s: Annotated[
        float,
        Field(
            ge=1,
            le=_LONGEST.total_seconds(),
            allow_inf_nan=False,
            strict=True,
            description="Lifetime in seconds. Streams end with the ticket, and browsers reconnect with the same ticket: "
            "choose it as long as the page stays open.",
        ),
    ] = 3600


class TicketCreated(ResponseModel):
    """A new ticket, which is shown only once."""

    ticket: str
    scope: TicketScope
    sandbox_id: str | None
    expires_at: datetime
