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
    """What has become of a command: failed never began, lost ended unseen."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"
    LOST = "lost"


class CommandSignal(StrEnum):
    """What can be sent to a command: SIGTERM and SIGKILL to it alone, the others to all that it started too."""

    SIGTERM = "SIGTERM"
    SIGKILL = "SIGKILL"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGQUIT = "SIGQUIT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


class CommandCreate(RequestModel):
    """What is to run in a sandbox."""

    cmd: Annotated[
        Storable,
        Field(min_length=1, max_length=_LONGEST_COMMAND, description="A line for a login shell."),
    ]
    cwd: Cwd = None
    envs: Annotated[
        Envs, Field(description="Variables for this command alone; they are not kept.")
    ] = Field(default_factory=dict)
    user: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$", description="Else its template's."),
    ] = None
    timeout_s: Annotated[
        Seconds | None,
        Field(description="When it is killed; null lets it run for as long as its sandbox does."),
    ] = None
    background: Annotated[bool, Field(strict=True, description="Answer when it has started.")] = (
        False
    )
    stdin: Annotated[
        bool, Field(strict=True, description="Leave its stdin open for input to come.")
    ] = False


class OutputCut(ResponseModel):
    """Bytes of a stream that are missing: where the first one was, and how many.

    null is that there may be some: the command was lost sight of for a moment, as in a pause or when a server restarts.
    """

    offset: int
    size: int | None


class CommandRead(ResponseModel):
    """A command and what has become of it; sizes are what it wrote, in bytes, of which not all may be kept."""

    id: str
    sandbox_id: str
    state: CommandState
    state_reason: str | None
    exit_code: int | None
    cmd: Annotated[str, Field(description="In lists its first 1000 characters.")]
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
    """A command with what it has written, as text; a line of it says where something is missing.

    Of each output the first and the last 512 KiB are told here, if it is longer than both.
    """

    stdout: str
    stderr: str
    stdout_cut: OutputCut | None
    stderr_cut: OutputCut | None


class OutputPiece(ResponseModel):
    """Some of what a command wrote: text, or what is no text in base64."""

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
        """Its text, with a sign in place of each byte that is none."""
        return self.text if self.text is not None else self.content.decode(errors="replace")


class OutputGap(ResponseModel):
    """Bytes that are not kept."""

    type: Literal["gap"]
    stream: Literal["stdout", "stderr"] | None
    offset: int
    size: int | None
    reason: str | None
    at: datetime


class OutputPart(ResponseModel):
    """Some of one stream of a command. There is no more once it does not run and `next_offset` is its `size`."""

    items: list[OutputPiece | OutputGap]
    next_offset: int
    size: int
    cut: Annotated[int, Field(description="How many of its bytes are not kept.")]
    state: CommandState


def _of_base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("It is not base64.") from None
    return text


class CommandInput(RequestModel):
    """What a command is to read from its stdin: text, or bytes in base64."""

    text: Annotated[Text, Field(max_length=_LONGEST_INPUT)] | None = None
    base64: (
        Annotated[str, Field(max_length=_LONGEST_INPUT * 4 // 3 + 4), AfterValidator(_of_base64)]
        | None
    ) = None
    close: Annotated[bool, Field(strict=True, description="End its input after this.")] = False

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.text is not None and self.base64 is not None:
            raise ValueError("It is either text or base64.")
        return self

    @property
    def content(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class CommandSend(RequestModel):
    signal: CommandSignal
