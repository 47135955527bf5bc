"""Netlink requests to the kernel without a process for each.

A request consists of one or more messages: a header (length, kind, flags, sequence, port), a fixed
body, and attributes (length, kind, data). The kernel works while `send` runs; its answers can be
read afterwards.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

ROUTE = 0
NETFILTER = 12

ACK = 0x004
REPLACE = 0x100
EXCLUSIVE = 0x200
CREATE = 0x400

_REQUEST = 0x001
_DUMP = 0x300
_ERROR, _DONE = 2, 3
_NESTED = 0x8000

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_STATUS = struct.Struct("=i")
_RECEIVE_BYTES = 65536


def message(kind: int, *parts: bytes, flags: int = ACK) -> bytes:
    """Encode a message."""
    body = b"".join(parts)
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST, 1, 0) + body


def attribute(kind: int, *parts: bytes) -> bytes:
    """Encode an attribute with padding."""
    data = b"".join(parts)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    """Encode an attribute that contains attributes."""
    return attribute(kind | _NESTED, *parts)


def text(kind: int, value: str) -> bytes:
    """Encode a string."""
    return attribute(kind, value.encode(), b"\0")


def number(kind: int, value: int) -> bytes:
    """Encode an integer."""
    return attribute(kind, struct.pack("=I", value))


def attributes(data: bytes) -> dict[int, bytes]:
    """Decode attributes."""
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & ~_NESTED] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


class Netlink:
    """A netlink socket in the network namespace of the thread that opens it."""

    def __init__(self, protocol: int = ROUTE) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, protocol)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def request(self, *messages: bytes) -> None:
        """Execute all messages; raises the first error."""
        self._socket.send(b"".join(messages))
        for kind, body in list(self._answers()):
            if kind == _ERROR:
                _raise_refusal(body)

    def dump(self, question: int, *parts: bytes) -> Iterator[bytes]:
        """List the kernel's objects of one kind."""
        self._socket.send(message(question, *parts, flags=_DUMP))
        while True:
            for kind, body in _messages(self._socket.recv(_RECEIVE_BYTES)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    _raise_refusal(body)
                yield body

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            yield from _messages(data)


class Watch:
    """Calls a callback when the kernel reports changes of a multicast group."""

    def __init__(self, protocol: int, group: int, heard: Callable[[], None]) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, protocol)
        self._socket.bind((0, group))
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._drain)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _drain(self) -> None:
        try:
            while self._socket.recv(_RECEIVE_BYTES):
                pass
        except BlockingIOError:
            self._heard()
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # some were lost; the next call covers them
                raise


def _raise_refusal(body: bytes) -> None:
    code = -_STATUS.unpack_from(body)[0]
    if code:
        raise OSError(code, os.strerror(code))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
