"""Processes in a sandbox, without the provider's own types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox_server.domain.commands import TerminalSize


@dataclass(frozen=True, kw_only=True)
class NewProcess:
    """A process to start; None leaves a value to the sandbox. It is found again by its tag."""

    args: Sequence[str]
    tag: str | None = None
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    stdin: bool = False
    size: TerminalSize | None = None
    """Of its terminal, if it has one."""


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    TERMINAL = "pty"


class ProcessSignal(StrEnum):
    """Signals of E2B's protocol."""

    TERM = "SIGTERM"
    KILL = "SIGKILL"


class GroupSignal(StrEnum):
    """Signals to a process group, which a program in the sandbox sends."""

    KILL = "SIGKILL"
    INT = "SIGINT"
    HUP = "SIGHUP"
    QUIT = "SIGQUIT"
    USR1 = "SIGUSR1"
    USR2 = "SIGUSR2"


@dataclass(frozen=True, slots=True)
class Started:
    pid: int


@dataclass(frozen=True, slots=True)
class Output:
    stream: OutputStream
    content: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process; without an exit code it was a signal, described by `words`."""

    exit_code: int | None
    words: str


ProcessEvent = Started | Output | Ended


@dataclass(frozen=True, slots=True)
class RunningProcess:
    pid: int
    tag: str | None


class TimeIsUp(Exception):
    """A process has reached its timeout."""
