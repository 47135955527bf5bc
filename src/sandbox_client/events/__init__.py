"""What streams tell, as it is handed to those who follow them.

A command       CommandStarted  CommandOutput  CommandGap  CommandExit
a run           AgentStarted  AgentMessage  AgentText  AgentGap  AgentEnded
events          EventRead, or a LogGap; a log also has LogRecord
files           FileChange, WatchGap, and WatchEnded as the last
a terminal      bytes, and TerminalAttached  TerminalGap  TerminalResized  SandboxStateChanged  TerminalProblem  TerminalExit

`id` is where to go on after; what a newer server may tell besides is left out.
"""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

from sandbox_client.models.agent_runs import AgentResult
from sandbox_client.models.commands import CommandState, OutputGap, OutputPiece
from sandbox_client.models.logs import LogEvent, LogGap, LogRecord
from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import ResponseModel


class CommandStarted(ResponseModel):
    id: int
    command_id: str
    pid: int | None = None
    at: datetime


class CommandOutput(OutputPiece):
    """Some of what it wrote: `content` are the bytes, `decoded` is their text."""

    id: int


class CommandGap(OutputGap):
    id: int


class CommandExit(ResponseModel):
    id: int
    state: CommandState
    exit_code: int | None
    reason: str | None = None
    at: datetime


class AgentStarted(ResponseModel):
    model_config = ConfigDict(extra="allow")

    id: int
    run_id: str
    agent: str | None = None
    at: datetime


class AgentMessage(ResponseModel):
    """One of the agent's own messages, as its program has them."""

    id: int
    message: Any
    at: datetime


class AgentText(ResponseModel):
    """What it wrote that is no message."""

    id: int
    text: str
    at: datetime


class AgentGap(ResponseModel):
    id: int
    size: int | None
    at: datetime


class AgentEnded(AgentResult):
    id: int
    at: datetime


class FileChange(ResponseModel):
    """Something that happened; `path` is relative to the directory that is watched."""

    type: Literal["created", "written", "removed", "renamed", "chmod"]
    path: str


class WatchGap(ResponseModel):
    """The connection was lost and is there again: what happened meanwhile is not known, so look."""


class WatchEnded(ResponseModel):
    reason: str | None


class TerminalAttached(ResponseModel):
    """The bytes that follow begin at `offset`."""

    offset: int
    cols: int
    rows: int
    state: CommandState


class TerminalGap(ResponseModel):
    offset: int
    size: int | None


class TerminalResized(ResponseModel):
    cols: int
    rows: int


class SandboxStateChanged(ResponseModel):
    """What the terminal's sandbox is now; a paused one resumes when somebody types."""

    state: SandboxState


class TerminalProblem(ResponseModel):
    """What was sent last came to nothing, for this reason."""

    code: str
    title: str
    detail: str


class TerminalExit(ResponseModel):
    state: CommandState
    exit_code: int | None
    reason: str | None = None


CommandEvent: TypeAlias = CommandStarted | CommandOutput | CommandGap | CommandExit
AgentEvent: TypeAlias = AgentStarted | AgentMessage | AgentText | AgentGap | AgentEnded
FileEvent: TypeAlias = FileChange | WatchGap | WatchEnded
TerminalEvent: TypeAlias = (
    TerminalAttached
    | TerminalGap
    | TerminalResized
    | SandboxStateChanged
    | TerminalProblem
    | TerminalExit
)
LogItem: TypeAlias = LogEvent | LogRecord | LogGap
