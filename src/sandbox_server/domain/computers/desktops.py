"""Desktops of sandboxes: their settings, who controls them, and their events.

desktop.changed             resolution, streaming or recording was set
desktop.action              an agent clicked, typed, scrolled, …; texts are counted, not stored
desktop.control_taken       a person took control; agents' actions are refused from here on
desktop.control_returned    the agent has control again
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Self, TypedDict

from sandbox_server.domain.events import SandboxEvent


class DesktopHolder(StrEnum):
    """The one whose input the desktop takes."""

    AGENT = "agent"
    PERSON = "person"


class DesktopMode(StrEnum):
    """Access that a link to a desktop grants."""

    VIEW = "view"
    CONTROL = "control"


class DesktopPatch(TypedDict, total=False):
    """Changes of a desktop's settings; missing fields stay as they are."""

    width: int
    height: int
    dpi: int
    stream: bool
    fps: int | None


@dataclass(frozen=True, kw_only=True)
class DesktopSettings:
    """The requested settings of a desktop; None leaves a value to the template."""

    width: int | None = None
    height: int | None = None
    dpi: int | None = None
    stream: bool = True
    fps: int | None = None
    """Frames per second of the recording; None: the desktop is not recorded."""

    @classmethod
    def of(cls, document: dict[str, Any] | None) -> Self:
        return cls(**document or {})

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, patch: DesktopPatch) -> Self:
        return replace(self, **patch)


class DesktopChanged(SandboxEvent):
    type: Literal["desktop.changed"] = "desktop.changed"
    width: int | None
    height: int | None
    dpi: int | None
    stream: bool
    fps: int | None


class DesktopActed(SandboxEvent):
    type: Literal["desktop.action"] = "desktop.action"
    action: str
    coordinate: list[int] | None = None
    characters: int | None = None
    key: str | None = None


class ControlTaken(SandboxEvent):
    type: Literal["desktop.control_taken"] = "desktop.control_taken"
    link_id: str | None
    name: str | None


class ControlReturned(SandboxEvent):
    type: Literal["desktop.control_returned"] = "desktop.control_returned"
    link_id: str | None
    name: str | None
