"""Handles to processes that are safe against the reuse of pids."""

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

_START = 19  # index of starttime among the fields after the name in /proc/PID/stat


@dataclass(frozen=True)
class ProcessIdentity:
    """Unique identity of a process: boot, start time and pid."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> Self:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        return cls(pid, f"{boot}/{fields.split()[_START]}")


class ProcessHandle:
    """A handle (pidfd) to a process, which need not be a child."""

    def __init__(self, identity: ProcessIdentity, pidfd: int) -> None:
        self.identity = identity
        self._pidfd = pidfd

    @classmethod
    def find(cls, identity: ProcessIdentity) -> "ProcessHandle | None":
        try:
            pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        # Compared after the pidfd was opened: the pid can no longer be reused.
        with suppress(FileNotFoundError, ProcessLookupError):
            found = cls(identity, pidfd)
            if ProcessIdentity.of(identity.pid) == identity and not found.has_ended(timedelta()):
                return found
        os.close(pidfd)
        return None

    def fileno(self) -> int:
        """Return the pidfd, which is readable once the process has ended."""
        return self._pidfd

    def has_ended(self, patience: timedelta) -> bool:
        """Wait for its end; return False on timeout."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(patience.total_seconds() * 1000))

    def stop(self, *, patience: timedelta) -> None:
        """Send SIGTERM, and SIGKILL after a timeout."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            if not self.has_ended(patience):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.has_ended(patience)

    def reap(self) -> int | None:
        """Close the handle and reap the process; return its exit code if it was a child."""
        os.close(self._pidfd)
        try:
            _, status = os.waitpid(self.identity.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)
