"""Process restrictions that are inherited and cannot be lifted."""

import re
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine.system import syscalls


@dataclass(frozen=True)
class Restrictions:
    """Restrictions of a process and its children, from `/proc/PID/status`."""

    seccomp_filters: int
    no_new_privileges: bool
    capabilities: int  # the bounding set

    @classmethod
    def of_this_process(cls) -> Self:
        return cls.of("self")

    @classmethod
    def of(cls, pid: int | str) -> Self:
        return cls.parse(Path(f"/proc/{pid}/status").read_text())

    @classmethod
    def parse(cls, status: str) -> Self:
        facts = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
        filtered = facts.get("Seccomp", "0") != "0"
        return cls(
            # Linux 5.9 and later report the number.
            seccomp_filters=int(facts.get("Seccomp_filters", filtered)),
            no_new_privileges=facts.get("NoNewPrivs") == "1",
            capabilities=int(facts["CapBnd"], 16),
        )

    def lacks(self, capability: int) -> bool:
        return not self.capabilities >> capability & 1


def can_set_hostname() -> bool:
    """Return whether a host name can be set as the OCI runtime does, in a new UTS namespace."""
    refusals: list[OSError] = []

    def attempt() -> None:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUTS)
            socket.sethostname("sandbox")
        except OSError as refusal:
            refusals.append(refusal)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return not refusals
