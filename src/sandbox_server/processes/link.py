import socket
from dataclasses import dataclass
from typing import IO

STOP = "stop"
STOPPED = "stopped"

_LONGEST_ORDER = 64


@dataclass(frozen=True)
class GuardLink:
    """One end of what a server and the guard of its engine say to each other."""

    orders: IO[str]
    answers: IO[str]

    def stop_engine(self) -> bool:
        """Have the engine ended; tells whether it has."""
        try:
            self.orders.write(f"{STOP}\n")
            self.orders.flush()
            return self.answers.readline().strip() == STOPPED
        except OSError:  # the guard was killed; the engine goes on
            return False

    def read_order(self) -> str:
        """Read what the server says; one that never ends a line gets no more of our memory than this."""
        return self.orders.readline(_LONGEST_ORDER).strip()

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
