from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox_client.models import (
    DesktopControlRead,
    DesktopHolder,
    DesktopRead,
    DesktopRecordingRead,
    DesktopRecordingState,
    DesktopResolution,
)
from sandbox_server.db.models import Desktop
from sandbox_server.desktops.guest import GuestAnswer
from sandbox_server.desktops.recording_repository import KeptRecording
from sandbox_server.domain.computers.desktops import DesktopSettings
from sandbox_server.domain.errors import PortBroken
from sandbox_server.domain.service_ports import DESKTOP_PORT

Model = TypeVar("Model", bound=BaseModel)


class _Size(BaseModel):
    width: int
    height: int


class GuestState(BaseModel):
    """The state that the desktop service in a sandbox reports."""

    model_config = ConfigDict(frozen=True)

    resolution: _Size
    dpi: int
    control: str
    recording: DesktopRecordingState | None = None
    viewers: int = 0


def read_guest(kind: type[Model], answer: GuestAnswer) -> Model:
    """Parse an answer of the desktop service."""
    return _validate(kind, answer.document())


def read_guest_list(kind: type[Model], answer: GuestAnswer) -> list[Model]:
    """Parse an answer of the desktop service that is a list."""
    document = answer.document()
    return [_validate(kind, each) for each in document] if isinstance(document, list) else []


def _validate(kind: type[Model], document: Any) -> Model:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PortBroken(
            DESKTOP_PORT, f"answered with an invalid document: {where}: {first['msg']}"
        ) from None


def view_desktop(
    settings: DesktopSettings, desktop: Desktop | None, state: GuestState | None, *, is_held: bool
) -> DesktopRead:
    """Describe a desktop; without a state, which only running sandboxes have, by its settings."""
    return DesktopRead(
        resolution=_resolution(settings, state),
        dpi=settings.dpi if state is None else state.dpi,
        stream=settings.stream,
        recording=None if state is None else state.recording,
        viewers=None if state is None else state.viewers,
        control=view_control(desktop, is_held=is_held),
    )


def view_recording(recording: KeptRecording) -> DesktopRecordingRead:
    """Describe a recording; one whose sandbox ended abruptly has ended with it."""
    row = recording.row
    reason = "the sandbox ended" if recording.is_sandbox_gone else None
    return DesktopRecordingRead(
        id=row.id,
        fps=row.fps,
        started_at=row.started_at,
        width=row.width,
        height=row.height,
        bytes=row.bytes,
        duration_s=round(recording.duration_s, 3),
        copied_at=row.copied_at,
        end_reason=row.end_reason or reason,
    )


def view_control(desktop: Desktop | None, *, is_held: bool) -> DesktopControlRead:
    if desktop is None or not is_held:
        return DesktopControlRead(
            holder=DesktopHolder.AGENT, link_id=None, name=None, since=None, until=None
        )
    return DesktopControlRead(
        holder=DesktopHolder.PERSON,
        link_id=desktop.holder_link_id,
        name=desktop.holder_name,
        since=desktop.held_since,
        until=desktop.held_until,
    )


def _resolution(settings: DesktopSettings, state: GuestState | None) -> DesktopResolution | None:
    if state is not None:
        size = state.resolution
        return DesktopResolution.model_construct(width=size.width, height=size.height)
    if settings.width is None or settings.height is None:
        return None
    return DesktopResolution(width=settings.width, height=settings.height)
