"""Signals during a start: started processes are stopped before this one ends."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_UNWINDING = (signal.SIGTERM, signal.SIGHUP)
HANDLED_SIGNALS = (signal.SIGINT, *_UNWINDING)


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP was received."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Leave the block with an exception at the first SIGTERM or SIGHUP, then end by that signal.

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
def signals_blocked() -> Iterator[None]:
    """Block signals during the block, while the process is set up only in part."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
