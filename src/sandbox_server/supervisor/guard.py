"""Guards the engine for an unprivileged server: as the server's parent, or beside it through sudo.

The server sends `started` when it serves, and `stop` to stop the engine with it. Without `stop` it has
crashed: the engine keeps running, and the next server finds it. Without `started` its start has failed:
an engine that was started for it is stopped, and removes what it has created.
"""

import fcntl
import logging
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.guard_channel import CONFIRMED, STARTED, STOP, STOPPED, GuardChannel

log = logging.getLogger(__name__)

_FIRST_DELAY = timedelta(seconds=1)
_LONGEST_DELAY = timedelta(seconds=30)
_STEADY = timedelta(minutes=1)  # an engine that ran this long did not fail at start
_LOOK = timedelta(minutes=1)


@contextmanager
def engine_of(directory: Path) -> Iterator[LocalEngine]:
    """Become the only guard of a directory's engine, and run the engine.

    An engine that was started here and not confirmed ends with the block. Waits for the guard of a
    crashed server, which may be about to end.
    """
    lock = _open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine = LocalEngine(directory)
        try:
            engine.ensure()
            yield engine
        finally:
            engine.roll_back()
    finally:
        os.close(lock)


def _open_lock(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        return os.open(directory / "guard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotServe(
            f"Cannot use the engine directory {directory}: {error.strerror}. Choose another "
            "--engine-dir or --state-dir."
        ) from None


class EngineGuard:
    """Restarts the engine whenever it dies, until the server is done."""

    def __init__(self, engine: LocalEngine, link: GuardChannel) -> None:
        self._engine = engine
        self._link = link
        self._delay = _FIRST_DELAY
        self._started = time.monotonic()
        self._start_at: float | None = None

    def run(self) -> None:
        """Guard until the server is done."""
        while not self._is_over():
            self._engine.rotate_log()
            if self._engine.is_there and self._engine.has_ended(timedelta()):
                self._note_end()
            elif self._start_at is not None and time.monotonic() >= self._start_at:
                self._start_again()

    def _is_over(self) -> bool:
        """Wait for events; return whether the server is done."""
        poll = select.poll()
        poll.register(self._link.orders, select.POLLIN)
        if self._engine.is_there:
            poll.register(self._engine, select.POLLIN)
        ready = dict(poll.poll(self._longest_sleep().total_seconds() * 1000))
        if self._link.orders.fileno() not in ready:
            return False
        order = self._link.read_order()
        if order == STARTED:
            self._engine.confirm()
            self._link.answer(CONFIRMED)
            return False
        if order == STOP:
            self._engine.stop()
            self._link.answer(STOPPED)
        return True

    def _longest_sleep(self) -> timedelta:
        if self._start_at is None:
            return _LOOK
        return timedelta(seconds=max(self._start_at - time.monotonic(), 0))

    def _note_end(self) -> None:
        status = self._engine.reap()
        if timedelta(seconds=time.monotonic() - self._started) > _STEADY:
            self._delay = _FIRST_DELAY
        seconds = self._delay.total_seconds()
        log.error(
            "engine_ended status=%s restart_in_s=%g log=%s", status, seconds, self._engine.log
        )
        self._start_at = time.monotonic() + seconds
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def _start_again(self) -> None:
        self._start_at = None
        self._started = time.monotonic()
        try:
            self._engine.start_again()
        except (CannotServe, OSError) as error:
            self._start_at = time.monotonic() + _LONGEST_DELAY.total_seconds()
            log.error("engine_start_failed error=%s", error)
        else:
            log.info("engine_restarted")
