"""Ports that a program in a test keeps from one start to the next."""

import secrets
import socket

# Below those that the kernel gives to outgoing connections: one of these could have the port when
# the program starts again.
_FIRST, _COUNT = 20_000, 12_000


def free_port() -> int:
    """Find a port of the loopback address that nobody listens on."""
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
