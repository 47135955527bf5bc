"""Types of tool parameters, defined without importing playwright."""

from dataclasses import dataclass
from typing import Literal

Answer = Literal["accept", "dismiss"]
Direction = Literal["down", "up", "left", "right", "top", "bottom", "into_view"]
MouseButton = Literal["left", "right", "middle"]
Show = Literal["nothing", "view", "screenshot"]


@dataclass(frozen=True)
class ElementTarget:
    """An element, named by a ref of browser_view or by a selector."""

    ref: str | None
    selector: str | None

    def __str__(self) -> str:
        return self.ref or self.selector or "the page"

    def __bool__(self) -> bool:
        return bool(self.ref or self.selector)
