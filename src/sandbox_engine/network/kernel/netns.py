import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sandbox_engine.system.syscalls import CLONE_NEWNET, setns

# Namespaces are per thread. This one enters those of sandboxes and runs nothing else.
_dialler = ThreadPoolExecutor(1, "netns-dial")

_DIAL_SECONDS = 10.0
# The last two are errors of ::1 where the host has no IPv6.
_NOTHING_THERE = {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


async def dial(netns: str, port: int, *, address: str) -> socket.socket:
    """Connect to a port from inside the sandbox: 127.0.0.1, then ::1, then its address."""
    async with asyncio.timeout(_DIAL_SECONDS):
        for host in ("127.0.0.1", "::1", address):
            try:
                return await _connect(netns, host, port)
            except OSError as error:
                if error.errno not in _NOTHING_THERE:
                    raise
    raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on port {port}")


async def listen(netns: str, port: int, *, backlog: int) -> socket.socket:
    """Listen on a port of 127.0.0.1 inside the sandbox."""
    opening = _dialler.submit(_open_listener, netns, port, backlog)
    try:
        return await asyncio.wrap_future(opening)
    except BaseException:
        opening.add_done_callback(_close)
        raise


@contextmanager
def visiting(netns: str) -> Iterator[int]:
    """Move this thread into the namespace for a while; yields the namespace's descriptor."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(there, CLONE_NEWNET)
            yield there
        finally:
            os.close(there)
            setns(here, CLONE_NEWNET)
    finally:
        os.close(here)


async def _connect(netns: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opening = _dialler.submit(_open_socket, netns, family)
    try:
        connection = await asyncio.wrap_future(opening)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        opening.add_done_callback(_close)
        raise
    return connection


def _open_socket(netns: str, family: socket.AddressFamily) -> socket.socket:
    with visiting(netns):
        return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def _open_listener(netns: str, port: int, backlog: int) -> socket.socket:
    listener = _open_socket(netns, socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def _close(opening: Future[socket.socket]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
