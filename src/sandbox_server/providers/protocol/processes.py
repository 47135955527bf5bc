"""Processes in a sandbox, without the provider's own types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox_server.domain.commands import TerminalSize


@dataclass(frozen=True, kw_only=True)
class NewProcess:
    """A process to be; what is None is left to the sandbox. It is found again by its tag."""

    args: Sequence[str]
    tag: str | None = None
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    stdin: bool = False
    size: TerminalSize | None = None
    """Of its terminal, if it is to have one."""


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    TERMINAL = "pty"


class ProcessSignal(StrEnum):
    """What E2B's protocol can send."""

    TERM = "SIGTERM"
    KILL = "SIGKILL"


class GroupSignal(StrEnum):
    """What it cannot, and a program in the sandbox sends for us: these, and any to all that a process started."""

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
    """How a process ended; without an exit code by a signal, as the words say."""

    exit_code: int | None
    words: str


ProcessEvent = Started | Output | Ended


@dataclass(frozen=True, slots=True)
class RunningProcess:
    pid: int
    tag: str | None


class TimeIsUp(Exception):
    """A process has lasted as long as it may."""
