"""Run a command while it and the parent process live, and leave no processes behind.

    python -I -S process_guard.py PARENT-PID LOG-FILE COMMAND…

A separate program that uses the standard library only: it also works when the tool server is killed. The command's stderr goes to a
file of bounded size; stdin and stdout belong to the command. SIGTERM ends all processes. The exit status is the command's.
"""

import ctypes
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_SECONDS = 1.0
_FORCE_SECONDS = 3.0
_MAX_LOG = 1 << 20
_CHUNK = 1 << 16


class Log:
    """A log file that is rotated once when it is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._open()

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            if os.fstat(self._file).st_size + len(data) > _MAX_LOG:
                os.close(self._file)
                self._path.replace(self._path.with_suffix(".log.1"))
                self._open()
            os.write(self._file, data)
        except OSError:  # a full disk must not end the server
            return

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        try:
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            self._file = None


def main(arguments: list[str]) -> int:
    parent, log, *command = arguments
    # Before the start: orphaned descendants are reparented to this process.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = _signal_socket()
    try:
        lifeline = os.pidfd_open(int(parent))
    except ProcessLookupError:
        return 0
    errors, child = _start(command)
    with selectors.DefaultSelector() as selector:
        for watched in (wakeup.fileno(), lifeline, errors):
            selector.register(watched, selectors.EVENT_READ)
        status = _watch(selector, errors, child, wakeup, Log(Path(log)))
    _terminate_descendants()
    return status


def _signal_socket() -> socket.socket:
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)
    signal.set_wakeup_fd(writing.detach())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reading


def _start(command: list[str]) -> tuple[int, int]:
    """Start the command in its own session, and release its stdin and stdout."""
    errors, its_errors = os.pipe()
    try:
        child = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, its_errors, 2)],
            setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    os.close(its_errors)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return errors, child


def _watch(
    selector: selectors.BaseSelector, errors: int, child: int, wakeup: socket.socket, log: Log
) -> int:
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if errors in ready:
            if data := os.read(errors, _CHUNK):
                log.write(data)
            else:
                selector.unregister(errors)
        if wakeup.fileno() in ready:
            if set(wakeup.recv(_CHUNK)) - {signal.SIGCHLD}:
                return 128 + signal.SIGTERM
            for pid, status in _reap():
                if pid == child:
                    _read_remaining(errors, log)
                    return status
        elif ready - {errors}:
            return 128 + signal.SIGTERM  # the parent has ended


def _read_remaining(errors: int, log: Log) -> None:
    """Log the last output, which often says why the command ended."""
    os.set_blocking(errors, False)
    try:
        log.write(os.read(errors, _CHUNK))
    except BlockingIOError:
        return


def _reap() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended = os.waitstatus_to_exitcode(status)
        yield pid, ended if ended >= 0 else 128 - ended


def _terminate_descendants() -> None:
    """Terminate, then kill all descendants. Those that became another user's through sudo survive."""
    signalled: set[int] = set()
    began = time.monotonic()
    while (left := _descendants()) and time.monotonic() < began + _GRACE_SECONDS + _FORCE_SECONDS:
        kindly = time.monotonic() < began + _GRACE_SECONDS
        for pid in left - signalled if kindly else left:
            _send(pid, signal.SIGTERM if kindly else signal.SIGKILL)
        signalled |= left
        time.sleep(0.01)
        for _ in _reap():
            pass


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants() -> set[int]:
    """List live descendants, without zombies."""
    parents: dict[int, int] = {}
    for config in Path("/proc").iterdir():
        if config.name.isdigit() and (parent := _parent(config)):
            parents[int(config.name)] = parent
    found, last = set[int](), {os.getpid()}
    while last:
        last = {pid for pid, parent in parents.items() if parent in last} - found
        found |= last
    return found


def _parent(process: Path) -> int | None:
    try:
        stat = (process / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
