import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

STARTED = "started"
CONFIRMED = "confirmed"
STOP = "stop"
STOPPED = "stopped"

_LONGEST_ORDER = 64


@dataclass(frozen=True)
class GuardLink:
    """One end of what a server and the guard of its engine say to each other."""

    orders: IO[str]
    answers: IO[str]

    def confirm_start(self) -> bool:
        """Report that the server has started, which makes its engine permanent; returns whether the guard confirmed."""
        return self._order(STARTED) == CONFIRMED

    def stop_engine(self) -> bool:
        """Have the engine ended; tells whether it has."""
        return self._order(STOP) == STOPPED

    def _order(self, order: str) -> str:
        try:
            self.orders.write(f"{order}\n")
            self.orders.flush()
            return self.answers.readline().strip()
        except OSError:  # the guard was killed
            return ""

    def read_order(self) -> str:
        """Read what the server says; one that never ends a line gets no more of our memory than this."""
        return self.orders.readline(_LONGEST_ORDER).strip()

    def answer(self, word: str) -> None:
        """Send an answer to the server; ignored if the server was killed meanwhile."""
        with suppress(OSError):
            self.answers.write(f"{word}\n")
            self.answers.flush()

    def close(self) -> None:
        self.orders.close()
        self.answers.close()


def make_link() -> tuple[GuardLink, GuardLink]:
    """Make both ends, the guard's and the server's, for two processes that come of one."""
    guards, servers = socket.socketpair()
    with guards, servers:
        return (
            GuardLink(orders=guards.makefile("r"), answers=guards.makefile("w")),
            GuardLink(orders=servers.makefile("w"), answers=servers.makefile("r")),
        )
