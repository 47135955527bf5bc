from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from sandbox_client.models.wire import Labels, Name, RequestModel, ResponseModel, Seconds

BrowserTimeout = Annotated[
    float,
    Field(
        ge=60,
        le=21600,
        allow_inf_nan=False,
        strict=True,
        description="The session ends this many seconds after its browser has started.",
    ),
]


class BrowserState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    COMPLETED = "completed"


class BrowserCreate(RequestModel):
    """A session of a browser in a sandbox of its own."""

    template: Name | None = Field(
        default=None,
        description="A template with a browser. Default: that of `browser` in the tenant's configuration, else `browser`.",
    )
    backend: Name | None = None
    agent_type: Name | None = Field(
        default=None, description="Its values in the tenant's configuration apply."
    )
    timeout_s: BrowserTimeout = 3600
    keep_alive: bool = Field(
        default=False,
        description="Whether the session continues after its last driver has disconnected.",
    )
    log: bool = Field(
        default=True,
        description="Whether to log CDP messages, and what pages write to their consoles, request and fail at.",
    )
    record: bool = Field(
        default=False, description="Whether to record pictures of the pages, up to five a second."
    )
    allowed_domains: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=100)
    ] = Field(
        default_factory=list,
        description="Domains that the browser may reach, with their subdomains; `*.example.com` is the subdomains alone. "
        "Default: all. The sandbox's network rules enforce them too.",
    )
    ignore_certificate_errors: bool = Field(
        default=False, description="Whether pages with invalid certificates are shown."
    )
    captcha: bool | None = Field(
        default=None,
        description="Whether the operator's service solves captchas, if there is one. Default: as the tenant's configuration says, else true.",
    )
    metadata: Labels = Field(default_factory=dict)
    user_id: Name | None = None
    priority: int = Field(default=0, ge=-100, le=100, strict=True)
    queue_timeout_s: Seconds | None = Field(
        default=None, description="The session fails if its sandbox has no slot within this time."
    )


class BrowserRead(ResponseModel):
    """A session of a browser. The end of the session deletes its sandbox."""

    id: str
    sandbox_id: str
    state: BrowserState
    state_reason: str | None
    keep_alive: bool
    timeout_s: float
    metadata: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    connect_by: datetime | None = Field(
        description="The session ends if no driver has connected until then."
    )
    expires_at: datetime | None
    ended_at: datetime | None
    cdp_url: str | None = Field(
        default=None,
        description="WebSocket URL for Playwright and Puppeteer. Whoever has it can drive the browser. Null once the "
        "session has ended, and for keys that may only read.",
    )
    webdriver_url: str | None = Field(default=None, description="URL for Selenium; as `cdp_url`.")
    live_url: str | None = Field(
        default=None, description="URL that shows the browser to people; as `cdp_url`."
    )


class BrowserLogKind(StrEnum):
    CONSOLE = "console"
    NETWORK = "network"
    ERROR = "error"
    PAGE = "page"
    CAPTCHA = "captcha"


class BrowserLogEntry(ResponseModel):
    """An entry of the log of a browser session."""

    at: datetime
    page: int = Field(description="Number of the page in its session.")
    kind: BrowserLogKind
    text: str = Field(
        description="The message. Of a request: why it failed, or the text of its status."
    )
    level: str | None = Field(
        description="Level of a message, such as `log`, `warning` or `error`."
    )
    url: str | None
    method: str | None = Field(description="HTTP method of a request.")
    status: int | None = Field(description="HTTP status of a response.")
    resource_type: str | None = Field(description="Type of a request, such as `Document` or `XHR`.")
    duration_ms: int | None


class BrowserRecordingRead(ResponseModel):
    """The recording of a page of a browser session."""

    page: int = Field(description="Number of the page in its session.")
    url: str = Field(description="The URL that the page showed last.")
    started_at: datetime
    ended_at: datetime = Field(description="The instant of the last picture.")
