from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from sandbox_client.models.commands import CommandState
from sandbox_client.models.wire import Cwd, Envs, RequestModel, ResponseModel, Storable

_LARGEST_SIZE = 1000

Cells = Annotated[int, Field(ge=1, le=_LARGEST_SIZE, strict=True)]


class TerminalCreate(RequestModel):
    """A terminal to be."""

    cols: Cells = 80
    rows: Cells = 24
    cmd: Annotated[
        Storable | None,
        Field(min_length=1, max_length=128 * 1024, description="Else a login shell."),
    ] = None
    cwd: Cwd = None
    envs: Annotated[
        Envs, Field(description="Variables for this terminal alone; they are not kept.")
    ] = Field(default_factory=dict)
    user: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$", description="Else its template's."),
    ] = None


class TerminalUpdate(RequestModel):
    """What is to change."""

    cols: Cells
    rows: Cells


class TerminalRead(ResponseModel):
    """A terminal and what has become of it; `size` is how many bytes it has shown, of which `cut` are not kept."""

    id: str
    sandbox_id: str
    state: CommandState
    state_reason: str | None
    exit_code: int | None
    cmd: str | None
    cwd: str | None
    user: str | None
    cols: int
    rows: int
    pid: int | None
    size: int
    cut: int
    path: Annotated[str, Field(description="Where to attach to it, by WebSocket.")]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class TerminalResize(RequestModel):
    """What a viewer sends to give the terminal another size."""

    type: Literal["resize"]
    cols: Cells
    rows: Cells


class TerminalPing(RequestModel):
    """What a viewer sends to hear whether anybody is there."""

    type: Literal["ping"]


TerminalControl = Annotated[TerminalResize | TerminalPing, Field(discriminator="type")]
READ_CONTROL: TypeAdapter[TerminalResize | TerminalPing] = TypeAdapter(TerminalControl)
