"""Processes started by the keeper; standard library only."""

import fcntl
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_engine.keeper.message_socket import Message

PIPE_BYTES = 1 << 20
ERROR_BYTES = 4096
CONSOLE_MESSAGE_BYTES = 4096


@dataclass(frozen=True)
class End:
    """Result of a program: wait status, and whether it was killed at its timeout."""

    status: int
    timed_out: bool

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and not self.timed_out


@dataclass
class Program:
    """A program that the keeper runs to completion."""

    pid: int
    ended: Callable[[End], None]
    deadline: float
    timed_out: bool = False

    def expire(self) -> None:
        """Kill the program at its timeout."""
        self.timed_out = True
        self.deadline = float("inf")
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass
class HeldCommand:
    """A process in a sandbox, with the keeper's ends of its pipes or terminal."""

    key: str
    pid: int
    host_pid: int
    descriptors: dict[str, int]
    status: int | None = None

    def describe(self) -> Message:
        return {
            "key": self.key,
            "pid": self.pid,
            "host_pid": self.host_pid,
            "status": self.status,
            "names": list(self.descriptors),
        }

    def close(self, name: str) -> None:
        if (descriptor := self.descriptors.pop(name, None)) is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        for name in tuple(self.descriptors):
            self.close(name)


@dataclass
class Launch:
    """A command that the OCI runtime is starting."""

    id: int
    key: str
    pid_file: Path
    console_path: Path | None
    owner: int
    ours: dict[str, int] = field(default_factory=dict)
    theirs: dict[str, int] = field(default_factory=dict)
    early: HeldCommand | None = None
    _console: socket.socket | None = None

    def open(self, *, stdin: bool) -> None:
        """Create the command's terminal socket or pipes."""
        if self.console_path is not None:
            self._console = _listen(self.console_path)
        else:
            if stdin:
                self.theirs["stdin"], self.ours["stdin"] = self._pipe()
            self.ours["stdout"], self.theirs["stdout"] = self._pipe()
        self.ours["stderr"], self.theirs["stderr"] = self._pipe()
        for descriptor in self.ours.values():
            os.set_blocking(descriptor, False)

    def _pipe(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        os.fchown(reader, self.owner, -1)  # otherwise the command could not reopen /dev/stdout
        with suppress(PermissionError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return reader, writer

    def close_theirs(self) -> None:
        while self.theirs:
            os.close(self.theirs.popitem()[1])

    def read_host_pid(self) -> int | None:
        """Read the command's pid, which the runtime writes before it exits."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def record_end(self, host_pid: int, status: int, *, pid: int) -> None:
        """Record a command that ended before the runtime's exit was seen."""
        self.early = HeldCommand(self.key, pid, host_pid, self.ours, status)

    def complete(self) -> HeldCommand:
        """Take over the command after the runtime has exited."""
        self._take_terminal()
        if self.early is not None:
            return self.early
        host_pid = self.read_host_pid()
        if host_pid is None:
            raise ProcessLookupError(f"the runtime wrote no pid to {self.pid_file}")
        pid = inner_pid(host_pid)
        self.ours["process"] = os.pidfd_open(host_pid)
        return HeldCommand(self.key, pid, host_pid, self.ours)

    def _take_terminal(self) -> None:
        if self._console is None:
            return
        connection, _ = self._console.accept()
        with connection:
            _, (terminal,), _, _ = socket.recv_fds(
                connection, CONSOLE_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
        os.set_blocking(terminal, False)
        os.close(self.ours.pop("stderr"))
        self.ours["pty"] = terminal

    def fail(self) -> str:
        """Release everything; returns the runtime's error output."""
        text = b""
        with suppress(KeyError, BlockingIOError):
            text = os.read(self.ours["stderr"], ERROR_BYTES)
        while self.ours:
            os.close(self.ours.popitem()[1])
        return text.decode(errors="replace").strip()

    def clean_up(self) -> None:
        """Remove the files used for the start."""
        self.pid_file.unlink(missing_ok=True)
        if self._console is not None and self.console_path is not None:
            self._console.close()
            self.console_path.unlink(missing_ok=True)


def inner_pid(host_pid: int) -> int:
    """Return the pid of a process (or zombie) in its innermost pid namespace."""
    for line in Path(f"/proc/{host_pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ProcessLookupError(f"process {host_pid} has no NSpid")


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(str(path))
    listener.listen(1)
    return listener
