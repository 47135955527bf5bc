"""Parses the data of stream events into their types."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from sandbox_client.errors.parsing import unexpected
from sandbox_client.events import (
    AgentEnded,
    AgentEvent,
    AgentGap,
    AgentMessage,
    AgentStarted,
    AgentText,
    CommandEvent,
    CommandExit,
    CommandGap,
    CommandOutput,
    CommandStarted,
    FileChange,
    LogItem,
    SandboxTurned,
    TerminalAttached,
    TerminalEvent,
    TerminalExit,
    TerminalGap,
    TerminalProblem,
    TerminalResized,
    WatchEnded,
)
from sandbox_client.models.logs import LogEvent, LogGap, LogRecord
from sandbox_client.models.operations import EventRead
from sandbox_client.models.wire import Told

T = TypeVar("T", bound=Told)

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
