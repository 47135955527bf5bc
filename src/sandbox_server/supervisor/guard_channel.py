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
class GuardChannel:
    """One end of the channel between a server and the guard of its engine."""

    orders: IO[str]
    answers: IO[str]

    def confirm_start(self) -> bool:
        """Report that the server has started, which makes its engine permanent; returns whether the guard confirmed."""
        return self._order(STARTED) == CONFIRMED

    def stop_engine(self) -> bool:
        """Request the stop of the engine; return whether it was stopped."""
        return self._order(STOP) == STOPPED

    def _order(self, order: str) -> str:
        try:
            self.orders.write(f"{order}\n")
            self.orders.flush()
            return self.answers.readline().strip()
        except OSError:  # the guard was killed
            return ""

    def read_order(self) -> str:
        """Read a message of the server, of bounded length."""
        return self.orders.readline(_LONGEST_ORDER).strip()

    def answer(self, word: str) -> None:
        """Send an answer to the server; ignored if the server was killed meanwhile."""
        with suppress(OSError):
            self.answers.write(f"{word}\n")
            self.answers.flush()

    def close(self) -> None:
        self.orders.close()
        self.answers.close()


def make_guard_channel() -> tuple[GuardChannel, GuardChannel]:
    """Create both ends, guard's and server's, before a fork."""
    guards, servers = socket.socketpair()
    with guards, servers:
        return (
            GuardChannel(orders=guards.makefile("r"), answers=guards.makefile("w")),
            GuardChannel(orders=servers.makefile("w"), answers=servers.makefile("r")),
        )
