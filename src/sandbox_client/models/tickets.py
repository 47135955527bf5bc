from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from sandbox_client.models.wire import Name, RequestModel, ResponseModel

_LONGEST = timedelta(hours=12)


class TicketScope(StrEnum):
    """What may be done with a ticket: `sandboxes` includes to type into terminals."""

    READ = "read"
    SANDBOXES = "sandboxes"


class TicketCreate(RequestModel):
    """A ticket to be."""

    scope: TicketScope = TicketScope.READ
    sandbox_id: Annotated[
        Name | None, Field(description="The only sandbox it is for; all of yours if left out.")
    ] = None
    ttl_s: Annotated[
        float,
        Field(
            ge=1,
            le=_LONGEST.total_seconds(),
            allow_inf_nan=False,
            strict=True,
            description="For how long it is good. Streams end with it, and a browser connects anew with "
            "the same one: give it as long as the page will be open.",
        ),
    ] = 3600


class TicketCreated(ResponseModel):
    """A new ticket, which is told this once."""

    ticket: str
    scope: TicketScope
    sandbox_id: str | None
    expires_at: datetime
