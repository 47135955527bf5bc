"""Events of streams.

A command       CommandStarted  CommandOutput  CommandGap  CommandExit
code            CodeStarted  CommandOutput  CodeResultEvent  CodeErrorEvent  CommandGap  CodeEnd
a run           AgentStarted  AgentMessage  AgentText  AgentGap  AgentEnded
events          EventRead, or a LogGap; a log also has LogRecord
files           FileChange, WatchGap, and WatchEnded as the last
a terminal      bytes, and TerminalAttached  TerminalGap  TerminalResized  SandboxStateChanged  TerminalProblem  TerminalExit

Pass `id` as `after` to continue after an event. Unknown events of newer servers are skipped.
"""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

from sandbox_client.models.agent_runs import AgentResult
from sandbox_client.models.code import CodeError, CodeExecutionState, CodeResult
from sandbox_client.models.commands import CommandState, OutputGap, OutputPiece
from sandbox_client.models.operations import LogEvent, LogGap, LogRecord
from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import ResponseModel


class CommandStarted(ResponseModel):
    id: int
    command_id: str
    pid: int | None = None
    at: datetime


class CommandOutput(OutputPiece):
    """A piece of output: `content` has the bytes, `decoded` the text."""

    id: int


class CommandGap(OutputGap):
    id: int


class CommandExit(ResponseModel):
    id: int
    state: CommandState
    exit_code: int | None
    reason: str | None = None
    at: datetime


class CodeStarted(ResponseModel):
    id: int
    execution_id: str
    at: datetime


class CodeResultEvent(CodeResult):
    """A result; formats of more than 1 MiB are only in `sizes`."""

    id: int
    at: datetime


class CodeErrorEvent(CodeError):
    id: int
    at: datetime


class CodeEnd(ResponseModel):
    id: int
    state: CodeExecutionState
    reason: str | None = None
    execution_count: int | None = None
    at: datetime


class AgentStarted(ResponseModel):
    model_config = ConfigDict(extra="allow")

    id: int
    run_id: str
    agent: str | None = None
    at: datetime


class AgentMessage(ResponseModel):
    """A message of the agent in its own format."""

    id: int
    message: Any
    at: datetime


class AgentText(ResponseModel):
    """Output that is not a message."""

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
    """A change; `path` is relative to the watched directory."""

    type: Literal["created", "written", "removed", "renamed", "chmod"]
    path: str


class WatchGap(ResponseModel):
    """The connection was lost and restored: changes in between are unknown."""


class WatchEnded(ResponseModel):
    reason: str | None


class TerminalAttached(ResponseModel):
    """The following bytes start at `offset`."""

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
    """The new state of the sandbox; input resumes a paused one."""

    state: SandboxState


class TerminalProblem(ResponseModel):
    """The last input or control message failed."""

    code: str
    title: str
    detail: str


class TerminalExit(ResponseModel):
    state: CommandState
    exit_code: int | None
    reason: str | None = None


CommandEvent: TypeAlias = CommandStarted | CommandOutput | CommandGap | CommandExit
CodeEvent: TypeAlias = (
    CodeStarted | CommandOutput | CodeResultEvent | CodeErrorEvent | CommandGap | CodeEnd
)
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
