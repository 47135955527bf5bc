from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from sandbox_client.models.wire import RequestModel, ResponseModel

LINK_LIFETIME_S = timedelta(hours=1).total_seconds()
_WEEK = timedelta(days=7).total_seconds()


class PortUrls(ResponseModel):
    """Where one port of a sandbox is reached."""

    port: int
    url: Annotated[
        str,
        Field(
            description="Through this server, at a host of the port's own: with your key in a header, or by a link."
        ),
    ]
    path_url: Annotated[
        str,
        Field(
            description="Through this server, below a path: with your key in a header, and without cookies. "
            "For programs; pages from there run no scripts."
        ),
    ]


LinkLifetime = Annotated[
    float,
    Field(ge=1, le=_WEEK, allow_inf_nan=False, strict=True, description="How long it is good for."),
]


class LinkCreate(RequestModel):
    """A link to one port of a sandbox, for people without a key."""

    ttl_s: LinkLifetime = LINK_LIFETIME_S
    path: Annotated[
        str,
        Field(
            pattern=r"^/[!-\"$-~]*$",
            max_length=2000,
            description="What it opens: a path, and a query if there is one, with escapes where they are needed.",
        ),
    ] = "/"


class LinkCreated(ResponseModel):
    """A link. Whoever has it reaches the port, so tell it to nobody else."""

    url: str
    expires_at: datetime
