import binascii
from base64 import b64decode
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sandbox_client.models.wire import (
    Cwd,
    Envs,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
    Text,
)

_LONGEST_COMMAND = 128 * 1024  # of one argument, in Linux
_LONGEST_INPUT = 2**20


class CommandState(StrEnum):
    """State of a command: `failed` could not be started, `lost` ended without a known result."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"
    LOST = "lost"


class CommandSignal(StrEnum):
    """Signals for commands. SIGTERM and SIGKILL go to the process itself, the others to its process group."""

    SIGTERM = "SIGTERM"
    SIGKILL = "SIGKILL"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGQUIT = "SIGQUIT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


class CommandCreate(RequestModel):
    """A command to run in a sandbox."""

    cmd: Annotated[
        Storable,
        Field(
            min_length=1,
            max_length=_LONGEST_COMMAND,
            description="Command line, run by a login shell.",
        ),
    ]
    cwd: Cwd = None
    envs: Annotated[
        Envs, Field(description="Environment variables of this command only; not stored.")
    ] = Field(default_factory=dict)
    user: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$",
            description="User in the sandbox. Default: the template's.",
        ),
    ] = None
    timeout_s: Annotated[
        Seconds | None,
        Field(description="Kill the command after this many seconds; null: no limit."),
    ] = None
    background: Annotated[
        bool, Field(strict=True, description="Return as soon as the command has started.")
    ] = False
    stdin: Annotated[bool, Field(strict=True, description="Keep stdin open for later input.")] = (
        False
    )


class OutputCut(ResponseModel):
    """Missing bytes of a stream: offset of the first one, and how many.

    A null `size` means that output may be missing because the server was not connected to the command for a moment, for
    example during a pause or a restart.
    """

    offset: int
    size: int | None


class CommandRead(ResponseModel):
    """A command and its state. Sizes are the bytes written, of which some may have been discarded."""

    id: str
    sandbox_id: str
    state: CommandState
    state_reason: str | None
    exit_code: int | None
    cmd: Annotated[str, Field(description="In lists, the first 1000 characters.")]
    cwd: str | None
    user: str | None
    background: bool
    stdin: bool
    pid: int | None
    timeout_s: float | None
    stdout_size: int
    stderr_size: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None


class CommandOutcome(CommandRead):
    """A command with its output as text; a line in the text marks missing output.

    Of longer output, the first and the last 512 KiB are returned.
    """

    stdout: str
    stderr: str
    stdout_cut: OutputCut | None
    stderr_cut: OutputCut | None


class OutputPiece(ResponseModel):
    """A piece of output: as text, or as base64 if it is not valid UTF-8."""

    type: Literal["stdout", "stderr"]
    offset: int
    text: str | None = None
    base64: str | None = None
    at: datetime

    @property
    def content(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()

    @property
    def decoded(self) -> str:
        """The text, with replacement characters for invalid bytes."""
        return self.text if self.text is not None else self.content.decode(errors="replace")


class OutputGap(ResponseModel):
    """Discarded or missing bytes."""

    type: Literal["gap"]
    stream: Literal["stdout", "stderr"] | None
    offset: int
    size: int | None
    reason: str | None
    at: datetime


class OutputPart(ResponseModel):
    """A part of one output stream. It is complete when the command has ended and `next_offset` equals `size`."""

    items: list[OutputPiece | OutputGap]
    next_offset: int
    size: int
    cut: Annotated[int, Field(description="Number of discarded bytes.")]
    state: CommandState


def _of_base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("Invalid base64.") from None
    return text


class CommandInput(RequestModel):
    """Input for stdin: text, or bytes as base64."""

    text: Annotated[Text, Field(max_length=_LONGEST_INPUT)] | None = None
    base64: (
        Annotated[str, Field(max_length=_LONGEST_INPUT * 4 // 3 + 4), AfterValidator(_of_base64)]
        | None
    ) = None
    close: Annotated[bool, Field(strict=True, description="Close stdin after this input.")] = False

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.text is not None and self.base64 is not None:
            raise ValueError("Use either text or base64, not both.")
        return self

    @property
    def content(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class CommandSend(RequestModel):
    signal: CommandSignal
