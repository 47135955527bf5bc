from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from sandbox_client.models.wire import RequestModel, ResponseModel

LINK_LIFETIME_S = timedelta(hours=1).total_seconds()
_WEEK = timedelta(days=7).total_seconds()


class PortUrls(ResponseModel):
    """URLs of a port of a sandbox."""

    port: int
    url: Annotated[
        str,
        Field(
            description="URL on a host name of its own. Requests need your API key in a header, or a link."
        ),
    ]
    path_url: Annotated[
        str,
        Field(
            description="URL below a path of this server, for programs: needs your API key in a header, without "
            "cookies. Browsers run no scripts of its pages."
        ),
    ]


LinkLifetime = Annotated[
    float,
    Field(
        ge=1,
        le=_WEEK,
        allow_inf_nan=False,
        strict=True,
        description="Lifetime of the link in seconds.",
    ),
]


class LinkCreate(RequestModel):
    """A link to a port for people without an API key."""

    ttl_s: LinkLifetime = LINK_LIFETIME_S
    path: Annotated[
        str,
        Field(
            pattern=r"^/[!-\"$-~]*$",
            max_length=2000,
            description="Path and optional query to open, percent-encoded.",
        ),
    ] = "/"


class LinkCreated(ResponseModel):
    """A link. Anyone who has it can use the port; keep it secret."""

    url: str
    expires_at: datetime


class BrowserLinkCreate(RequestModel):
    """Links to the browser of a sandbox."""

    ttl_s: LinkLifetime = LINK_LIFETIME_S
    live_mode: Literal["control", "view"] = Field(
        default="control",
        description="Whether the page at `live_url` takes input, or is for watching only.",
    )


class BrowserLinkRead(ResponseModel):
    """URLs of a sandbox's browser. Anyone who has one can use the browser; keep them secret."""

    cdp_url: Annotated[
        str,
        Field(
            description="WebSocket of the Chrome DevTools protocol: for `chromium.connectOverCDP` of Playwright and "
            "`browserWSEndpoint` of Puppeteer."
        ),
    ]
    webdriver_url: Annotated[
        str, Field(description="Remote end for Selenium and other WebDriver clients.")
    ]
    live_url: Annotated[
        str,
        Field(
            description="Page that shows the browser's tabs to people, and takes input unless `live_mode` is `view`."
        ),
    ]
    expires_at: datetime
