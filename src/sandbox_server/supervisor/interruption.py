"""Signals that end a process while it starts: everything that it has started by then is stopped first."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_UNWINDING = (signal.SIGTERM, signal.SIGHUP)
HEEDED = (signal.SIGINT, *_UNWINDING)


class Interrupted(KeyboardInterrupt):
    """A signal other than SIGINT asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Leave the block by an exception at the first SIGTERM or SIGHUP, then end by that signal.

    A second one ends the process at once.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        restore_defaults()
        raise Interrupted(number)

    for number in _UNWINDING:
        signal.signal(number, interrupt)
    try:
        yield
    except Interrupted as interrupted:
        restore_defaults()
        os.kill(os.getpid(), interrupted.number)
        raise
    finally:
        restore_defaults()


def restore_defaults() -> None:
    for number in _UNWINDING:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def signals_held() -> Iterator[None]:
    """Keep signals until the end of the block, where they could find a process half set up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
