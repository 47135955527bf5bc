"""What streams tell, as it is handed to those who follow them.

A command       CommandStarted  CommandOutput  CommandGap  CommandExit
a run           AgentStarted  AgentMessage  AgentText  AgentGap  AgentEnded
events          EventRead, or a LogGap; a log also has LogRecord
files           FileChange, WatchGap, and WatchEnded as the last
a terminal      bytes, and TerminalAttached  TerminalGap  TerminalResized  SandboxTurned  TerminalProblem  TerminalExit

`id` is where to go on after; what a newer server may tell besides is left out.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, ValidationError

from sandbox_client.errors import unexpected
from sandbox_client.models.agent_runs import AgentResult
from sandbox_client.models.commands import CommandState, OutputGap, OutputPiece
from sandbox_client.models.logs import LogEvent, LogGap, LogRecord
from sandbox_client.models.operations import EventRead
from sandbox_client.models.sandboxes import SandboxState
from sandbox_client.models.wire import Told

T = TypeVar("T", bound=Told)


class CommandStarted(Told):
    id: int
    command_id: str
    pid: int | None = None
    at: datetime


class CommandOutput(OutputPiece):
    """Some of what it wrote: `content` are the bytes, `decoded` is their text."""

    id: int


class CommandGap(OutputGap):
    id: int


class CommandExit(Told):
    id: int
    state: CommandState
    exit_code: int | None
    reason: str | None = None
    at: datetime


class AgentStarted(Told):
    model_config = ConfigDict(extra="allow")

    id: int
    run_id: str
    agent: str | None = None
    at: datetime


class AgentMessage(Told):
    """One of the agent's own messages, as its program has them."""

    id: int
    message: Any
    at: datetime


class AgentText(Told):
    """What it wrote that is no message."""

    id: int
    text: str
    at: datetime


class AgentGap(Told):
    id: int
    size: int | None
    at: datetime


class AgentEnded(AgentResult):
    id: int
    at: datetime


class FileChange(Told):
    """Something that happened; `path` is relative to the directory that is watched."""

    type: Literal["created", "written", "removed", "renamed", "chmod"]
    path: str


class WatchGap(Told):
    """The connection was lost and is there again: what happened meanwhile is not known, so look."""


class WatchEnded(Told):
    reason: str | None


class TerminalAttached(Told):
    """The bytes that follow begin at `offset`."""

    offset: int
    cols: int
    rows: int
    state: CommandState


class TerminalGap(Told):
    offset: int
    size: int | None


class TerminalResized(Told):
    cols: int
    rows: int


class SandboxTurned(Told):
    """What the terminal's sandbox is now; a paused one resumes when somebody types."""

    state: SandboxState


class TerminalProblem(Told):
    """What was sent last came to nothing, for this reason."""

    code: str
    title: str
    detail: str


class TerminalExit(Told):
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
    | SandboxTurned
    | TerminalProblem
    | TerminalExit
)
LogItem: TypeAlias = LogEvent | LogRecord | LogGap

_OF_COMMANDS: Mapping[str, type[CommandEvent]] = {
    "started": CommandStarted,
    "stdout": CommandOutput,
    "stderr": CommandOutput,
    "gap": CommandGap,
    "exit": CommandExit,
}
_OF_AGENTS: Mapping[str, type[AgentEvent]] = {
    "started": AgentStarted,
    "message": AgentMessage,
    "text": AgentText,
    "gap": AgentGap,
    "result": AgentEnded,
}
_OF_TERMINALS: Mapping[str, type[TerminalEvent]] = {
    "attached": TerminalAttached,
    "gap": TerminalGap,
    "resized": TerminalResized,
    "sandbox": SandboxTurned,
    "problem": TerminalProblem,
    "exit": TerminalExit,
}
_CHANGES = frozenset({"created", "written", "removed", "renamed", "chmod"})


def read_command_event(data: str, number: str) -> CommandEvent | None:
    told = _object(data)
    kind = _OF_COMMANDS.get(told["type"])
    return None if kind is None else _read(kind, {**told, "id": number})


def read_agent_event(data: str, number: str) -> AgentEvent | None:
    told = _object(data)
    kind = _OF_AGENTS.get(told["type"])
    return None if kind is None else _read(kind, {**told, "id": number})


def read_event(data: str, _number: str) -> EventRead | LogGap:
    told = _object(data)
    return _read(LogGap, told) if told["type"] == "gap" else _read(EventRead, told)


def read_log_item(data: str, _number: str) -> LogItem:
    return log_item(_object(data))


def log_item(told: Mapping[str, Any]) -> LogItem:
    source = told.get("source")
    if source is None:
        return _read(LogGap, told)
    return _read(LogEvent, told) if source == "events" else _read(LogRecord, told)


def read_file_event(data: str, _number: str) -> FileChange | WatchEnded | None:
    told = _object(data)
    if told["type"] == "ended":
        return _read(WatchEnded, told)
    return _read(FileChange, told) if told["type"] in _CHANGES else None


def read_terminal_event(data: str) -> TerminalEvent | None:
    told = _object(data)
    kind = _OF_TERMINALS.get(told["type"])
    return None if kind is None else _read(kind, told)


Reader: TypeAlias = Callable[[str, str], T | None]


def _object(data: str) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("type"), str):
        raise unexpected(200, data.encode())
    return told


def _read(kind: type[T], told: Mapping[str, Any]) -> T:
    try:
        return kind.model_validate(told)
    except ValidationError:
        raise unexpected(200, json.dumps(told).encode()) from None
