from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandbox_client.models.ports import LINK_LIFETIME_S, LinkLifetime
from sandbox_client.models.wire import Name, RequestModel, ResponseModel, Storable

_SMALLEST, _LARGEST = 64, 8192
_LONGEST_TEXT = 64 * 1024
_LONGEST_PAUSE_S = 60.0
_DAY_S = 24 * 3600.0

Pixels = Annotated[int, Field(ge=_SMALLEST, le=_LARGEST, strict=True)]
Dpi = Annotated[int, Field(ge=48, le=480, strict=True)]
Fps = Annotated[int, Field(ge=1, le=30, strict=True, description="Frames per second.")]
Coordinate = Annotated[int, Field(ge=0, le=_LARGEST, strict=True)]
Point = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]
Region = Annotated[list[Coordinate], Field(min_length=4, max_length=4)]


class DesktopHolder(StrEnum):
    """The one whose input the desktop takes."""

    AGENT = "agent"
    PERSON = "person"


class DesktopMode(StrEnum):
    """Access that a link to a desktop grants; `control` includes `view`."""

    VIEW = "view"
    CONTROL = "control"


class DesktopResolution(RequestModel):
    """Size of a desktop in pixels."""

    width: Pixels
    height: Pixels


class DesktopRecordingOptions(RequestModel):
    """How a desktop is recorded."""

    fps: Fps = 5


class DesktopOptions(RequestModel):
    """Settings of the desktop of a new sandbox; its template must have one. Applied again whenever the sandbox resumes."""

    resolution: DesktopResolution | None = None
    dpi: Dpi | None = None
    stream: Annotated[
        bool, Field(strict=True, description="Whether links can show the desktop to people.")
    ] = True
    recording: DesktopRecordingOptions | None = None


class DesktopUpdate(RequestModel):
    """Settings to change; omitted fields stay as they are."""

    resolution: DesktopResolution | None = None
    dpi: Dpi | None = None
    stream: Annotated[bool, Field(strict=True)] | None = None
    recording: (
        Annotated[DesktopRecordingOptions, Field(description="null stops the recording.")] | None
    ) = None


class DesktopControlRead(ResponseModel):
    """The holder of control over a desktop. A person's control has an expiry."""

    holder: DesktopHolder
    link_id: str | None
    name: Annotated[str, Field(description="Name of the link of the person.")] | None
    since: datetime | None
    until: (
        Annotated[
            datetime,
            Field(
                description="When the agent gets the control back; postponed while the person's page is open."
            ),
        ]
        | None
    )


class DesktopRecordingState(ResponseModel):
    """The recording that is being made."""

    id: str
    fps: int
    started_at: datetime


class DesktopRead(ResponseModel):
    """The state of a desktop. Of a paused sandbox only the settings are known."""

    resolution: DesktopResolution | None
    dpi: int | None
    stream: bool
    recording: DesktopRecordingState | None
    viewers: int | None
    control: DesktopControlRead


class DesktopActionName(StrEnum):
    SCREENSHOT = "screenshot"
    LEFT_CLICK = "left_click"
    RIGHT_CLICK = "right_click"
    MIDDLE_CLICK = "middle_click"
    DOUBLE_CLICK = "double_click"
    TRIPLE_CLICK = "triple_click"
    LEFT_CLICK_DRAG = "left_click_drag"
    LEFT_MOUSE_DOWN = "left_mouse_down"
    LEFT_MOUSE_UP = "left_mouse_up"
    MOUSE_MOVE = "mouse_move"
    SCROLL = "scroll"
    TYPE = "type"
    KEY = "key"
    HOLD_KEY = "hold_key"
    WAIT = "wait"
    ZOOM = "zoom"
    CURSOR_POSITION = "cursor_position"


_REQUIRED = {
    DesktopActionName.LEFT_CLICK_DRAG: ("coordinate",),
    DesktopActionName.MOUSE_MOVE: ("coordinate",),
    DesktopActionName.SCROLL: ("scroll_direction",),
    DesktopActionName.TYPE: ("text",),
    DesktopActionName.KEY: ("text",),
    DesktopActionName.HOLD_KEY: ("text", "duration_s"),
    DesktopActionName.WAIT: ("duration_s",),
    DesktopActionName.ZOOM: ("region",),
}


class DesktopAction(RequestModel):
    """One action on a desktop: the action space of the common computer-use tools."""

    action: DesktopActionName
    coordinate: (
        Annotated[Point, Field(description="x and y; default: where the pointer is.")] | None
    ) = None
    start_coordinate: (
        Annotated[Point, Field(description="Start of a drag; default: where the pointer is.")]
        | None
    ) = None
    text: (
        Annotated[
            Storable,
            Field(
                min_length=1,
                max_length=_LONGEST_TEXT,
                description="Text to type, or a key such as `Return` or `ctrl+s`; of a click or scroll, the keys to hold.",
            ),
        ]
        | None
    ) = None
    scroll_direction: Literal["up", "down", "left", "right"] | None = None
    scroll_amount: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    duration_s: (
        Annotated[float, Field(gt=0, le=_LONGEST_PAUSE_S, strict=True, allow_inf_nan=False)] | None
    ) = None
    region: (
        Annotated[
            Region, Field(description="x0, y0, x1, y1 of the part that `zoom` shows enlarged.")
        ]
        | None
    ) = None
    screenshot: Annotated[
        bool, Field(strict=True, description="Return a screenshot taken after the action.")
    ] = False

    @model_validator(mode="after")
    def _require_fields(self) -> Self:
        for name in _REQUIRED.get(self.action, ()):
            if getattr(self, name) is None:
                raise ValueError(f"The action {self.action} needs `{name}`.")
        if self.region is not None:
            x0, y0, x1, y1 = self.region
            if x0 >= x1 or y0 >= y1:
                raise ValueError("`region` is x0, y0, x1, y1 with x0 < x1 and y0 < y1.")
        return self


class DesktopActionResult(ResponseModel):
    """The result of an action."""

    cursor: Annotated[list[int], Field(description="x and y of the pointer.")]
    screenshot: Annotated[str, Field(description="PNG in base64.")] | None = None
    width: int
    height: int


class DesktopControlUpdate(RequestModel):
    """Request to give control of the desktop to a person or to the agent."""

    holder: DesktopHolder
    ttl_s: Annotated[
        float,
        Field(
            ge=1,
            le=_DAY_S,
            allow_inf_nan=False,
            strict=True,
            description="When the control of a person ends by itself.",
        ),
    ] = 600.0


class DesktopLinkCreate(RequestModel):
    """A link to the desktop's page for people without an API key."""

    mode: DesktopMode = DesktopMode.VIEW
    ttl_s: LinkLifetime = LINK_LIFETIME_S
    name: Annotated[Name, Field(description="Who it is for; shown in the timeline.")] | None = None


class DesktopLinkRead(ResponseModel):
    """A valid link; its URL is returned only when it is created."""

    id: str
    mode: DesktopMode
    name: str | None
    created_at: datetime
    expires_at: datetime


class DesktopLinkCreated(DesktopLinkRead):
    """A new link. Anyone who has the URL can use the desktop; keep it secret."""

    url: str


class DesktopRecordingRead(ResponseModel):
    """A recording of a desktop, kept by the server."""

    id: str
    fps: int
    started_at: datetime
    width: int
    height: int
    bytes: Annotated[int, Field(description="That were copied from the sandbox.")]
    duration_s: Annotated[float, Field(description="Seconds that were copied from the sandbox.")]
    copied_at: datetime | None
    end_reason: Annotated[str, Field(description="null while the recording goes on.")] | None
