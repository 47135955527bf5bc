from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from sandbox_client.models.commands import CommandState
from sandbox_client.models.wire import Cwd, Envs, RequestModel, ResponseModel, Storable

_LARGEST_SIZE = 1000

Cells = Annotated[int, Field(ge=1, le=_LARGEST_SIZE, strict=True)]


class TerminalCreate(RequestModel):
    """Parameters of a new terminal."""

    cols: Cells = 80
    rows: Cells = 24
    cmd: Annotated[
        Storable | None,
        Field(
            min_length=1,
            max_length=128 * 1024,
            description="Command to run. Default: a login shell.",
        ),
    ] = None
    cwd: Cwd = None
    envs: Annotated[
        Envs, Field(description="Environment variables of this terminal only; not stored.")
    ] = Field(default_factory=dict)
    user: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$",
            description="User in the sandbox. Default: the template's.",
        ),
    ] = None


class TerminalUpdate(RequestModel):
    """The new size."""

    cols: Cells
    rows: Cells


class TerminalRead(ResponseModel):
    """A terminal and its state. `size` is the number of output bytes, of which `cut` were discarded."""

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
    path: Annotated[str, Field(description="WebSocket path to attach to.")]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class TerminalResize(RequestModel):
    """Sent by a client to resize the terminal."""

    type: Literal["resize"]
    cols: Cells
    rows: Cells


class TerminalPing(RequestModel):
    """Sent by a client to check the connection."""

    type: Literal["ping"]


TerminalControl = Annotated[TerminalResize | TerminalPing, Field(discriminator="type")]
READ_CONTROL: TypeAdapter[TerminalResize | TerminalPing] = TypeAdapter(TerminalControl)
