"""Which process a number stands for: after a restart of the machine or much work, perhaps another."""

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

_START = 19  # of what follows the name in /proc/PID/stat, the instant at which it began


@dataclass(frozen=True)
class Identity:
    """One process of this machine, among all that ever were and will be."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> Self:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        return cls(pid, f"{boot}/{fields.split()[_START]}")


class LivingProcess:
    """A process that need not be our child."""

    def __init__(self, identity: Identity, pidfd: int) -> None:
        self.identity = identity
        self._pidfd = pidfd

    @classmethod
    def find(cls, identity: Identity) -> "LivingProcess | None":
        try:
            pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        # Looked at only now: the number cannot come to stand for another in between.
        with suppress(FileNotFoundError, ProcessLookupError):
            found = cls(identity, pidfd)
            if Identity.of(identity.pid) == identity and not found.has_ended(timedelta()):
                return found
        os.close(pidfd)
        return None

    def fileno(self) -> int:
        """Be readable once it has ended."""
        return self._pidfd

    def has_ended(self, patience: timedelta) -> bool:
        """Wait for its end, for so long at most."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(patience.total_seconds() * 1000))

    def stop(self, *, patience: timedelta) -> None:
        """Ask it to end, and end it if it takes too long."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            if not self.has_ended(patience):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.has_ended(patience)

    def bury(self) -> int | None:
        """Forget a process that has ended; tells how it did if it was our child."""
        os.close(self._pidfd)
        try:
            _, status = os.waitpid(self.identity.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)
