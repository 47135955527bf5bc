"""What callers may ask of the desktop service."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox_tools.desktop.control import Holder

MOST_TEXT = 10_000
Coordinate = tuple[int, int]
Action = Literal[
    "screenshot", "left_click", "right_click", "middle_click", "double_click", "triple_click", "left_click_drag",
    "left_mouse_down", "left_mouse_up", "mouse_move", "scroll", "type", "key", "hold_key", "wait", "zoom",
    "cursor_position",
]  # fmt: skip


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ActionRequest(_Request):
    action: Action
    coordinate: Coordinate | None = None
    start_coordinate: Coordinate | None = None
    text: Annotated[str, Field(max_length=MOST_TEXT)] | None = None
    scroll_direction: Literal["up", "down", "left", "right"] | None = None
    scroll_amount: Annotated[int, Field(ge=1, le=100)] = 3
    duration_s: Annotated[float, Field(ge=0, le=60)] | None = None
    region: tuple[int, int, int, int] | None = None
    screenshot: bool = False


class DisplayRequest(_Request):
    # Bounds are Display's, whose sentences name them.
    width: int
    height: int
    dpi: int | None = None


class ControlRequest(_Request):
    holder: Holder


class RecordingRequest(_Request):
    fps: Annotated[int, Field(ge=1, le=30)] = 5
