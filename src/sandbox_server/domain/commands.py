"""Commands: programs in sandboxes whose output is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any


class CommandKind(StrEnum):
    COMMAND = "command"
    TERMINAL = "terminal"
    SERVICE = "service"
    """The log of a service of the template."""
    AGENT = "agent"
    """A run of a coding agent."""
    CODE = "code"
    """An execution of code by the code interpreter in the sandbox."""


class CommandState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"
    """The command could not be started."""
    LOST = "lost"
    """The command has ended without a recorded result."""


COMMAND_LIVING = frozenset({CommandState.STARTING, CommandState.RUNNING})


@dataclass(frozen=True, kw_only=True)
class TerminalSize:
    cols: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """A requested command; None leaves a value to the sandbox."""

    cmd: str
    kind: CommandKind = CommandKind.COMMAND
    name: str | None = None
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    timeout: timedelta | None = None
    background: bool = False
    stdin: bool = False
    size: TerminalSize | None = None
    agent: Mapping[str, Any] | None = None
    """The stored part of an agent's run."""
    code: Mapping[str, Any] | None = None
    """The stored part of an execution of code: language and context."""
