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
    CodeEnd,
    CodeErrorEvent,
    CodeEvent,
    CodeResultEvent,
    CodeStarted,
    CommandEvent,
    CommandExit,
    CommandGap,
    CommandOutput,
    CommandStarted,
    FileChange,
    LogItem,
    SandboxStateChanged,
    TerminalAttached,
    TerminalEvent,
    TerminalExit,
    TerminalGap,
    TerminalProblem,
    TerminalResized,
    WatchEnded,
)
from sandbox_client.models.operations import EventRead, LogEvent, LogGap, LogRecord
from sandbox_client.models.wire import ResponseModel

T = TypeVar("T", bound=ResponseModel)

_OF_COMMANDS: Mapping[str, type[CommandEvent]] = {
    "started": CommandStarted,
    "stdout": CommandOutput,
    "stderr": CommandOutput,
    "gap": CommandGap,
    "exit": CommandExit,
}
_OF_CODE: Mapping[str, type[CodeEvent]] = {
    "started": CodeStarted,
    "stdout": CommandOutput,
    "stderr": CommandOutput,
    "result": CodeResultEvent,
    "error": CodeErrorEvent,
    "gap": CommandGap,
    "end": CodeEnd,
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
    "sandbox": SandboxStateChanged,
    "problem": TerminalProblem,
    "exit": TerminalExit,
}
_CHANGES = frozenset({"created", "written", "removed", "renamed", "chmod"})


def read_command_event(data: str, number: str) -> CommandEvent | None:
    fields = _object(data)
    kind = _OF_COMMANDS.get(fields["type"])
    return None if kind is None else _read(kind, {**fields, "id": number})


def read_code_event(data: str, number: str) -> CodeEvent | None:
    fields = _object(data)
    kind = _OF_CODE.get(fields["type"])
    return None if kind is None else _read(kind, {**fields, "id": number})


def read_agent_event(data: str, number: str) -> AgentEvent | None:
    fields = _object(data)
    kind = _OF_AGENTS.get(fields["type"])
    return None if kind is None else _read(kind, {**fields, "id": number})


def read_event(data: str, _number: str) -> EventRead | LogGap:
    fields = _object(data)
    return _read(LogGap, fields) if fields["type"] == "gap" else _read(EventRead, fields)


def read_log_item(data: str, _number: str) -> LogItem:
    return log_item(_object(data))


def log_item(fields: Mapping[str, Any]) -> LogItem:
    source = fields.get("source")
    if source is None:
        return _read(LogGap, fields)
    return _read(LogEvent, fields) if source == "events" else _read(LogRecord, fields)


def read_file_event(data: str, _number: str) -> FileChange | WatchEnded | None:
    fields = _object(data)
    if fields["type"] == "ended":
        return _read(WatchEnded, fields)
    return _read(FileChange, fields) if fields["type"] in _CHANGES else None


def read_terminal_event(data: str) -> TerminalEvent | None:
    fields = _object(data)
    kind = _OF_TERMINALS.get(fields["type"])
    return None if kind is None else _read(kind, fields)


Reader: TypeAlias = Callable[[str, str], T | None]


def _object(data: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
        raise unexpected(200, data.encode())
    return fields


def _read(kind: type[T], fields: Mapping[str, Any]) -> T:
    try:
        return kind.model_validate(fields)
    except ValidationError:
        raise unexpected(200, json.dumps(fields).encode()) from None
