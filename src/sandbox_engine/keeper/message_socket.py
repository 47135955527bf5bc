"""The socket between engine and keeper, the same on both sides; standard library only."""

import array
import json
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_MESSAGE_BYTES = 1 << 16
_MOST_DESCRIPTORS = 8

Message = dict[str, Any]


class MessageSocket:
    """Sends and receives messages with descriptors without blocking."""

    def __init__(self, connection: socket.socket, on_full: Callable[[bool], None]) -> None:
        self.connection = connection
        connection.setblocking(False)
        self._on_full = on_full
        self._waiting: deque[tuple[bytes, Sequence[int]]] = deque()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send the message, now or when the other side has room."""
        data = json.dumps(message).encode()
        if len(data) > _MESSAGE_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is too long")
        if self._waiting or not self._transmit(data, descriptors):
            self._waiting.append((data, [os.dup(descriptor) for descriptor in descriptors]))
            self._on_full(True)

    def flush(self) -> None:
        """Send queued messages; the socket has room again."""
        while self._waiting and self._transmit(*self._waiting[0]):
            _, descriptors = self._waiting.popleft()
            _close(descriptors)
        if not self._waiting:
            self._on_full(False)

    def receive(self) -> tuple[Message, list[int]] | None:
        """Receive the next message with its descriptors; None when the other side is closed."""
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self.connection, _MESSAGE_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return None
        return (json.loads(data), descriptors) if data else None

    def close(self) -> None:
        self.connection.close()
        while self._waiting:
            _close(self._waiting.pop()[1])

    def _transmit(self, data: bytes, descriptors: Sequence[int]) -> bool:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            # A closed peer is detected by the reader.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.connection.sendmsg([data], [rights] if descriptors else [])
        except BlockingIOError:
            return False
        return True


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
