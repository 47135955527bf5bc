"""A start that is undone unless the process that asked for it confirms it.

    starter                              sandbox-engine serve --provisional
      makes a pipe                  ->     reads it as its standard input
      writes a byte once it serves  ->     stays, whatever becomes of the starter
      closes the pipe               ->     ends, and removes what it has made

The kernel closes the pipe of a starter that is killed, so its death needs no one to notice it.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_engine.system.log import get_logger

log = get_logger(__name__)


class ProvisionalStart:
    """Whether this engine stays running; without `provisional` it does."""

    def __init__(self, *, provisional: bool) -> None:
        self.is_confirmed = not provisional
        self.is_withdrawn = False
        self._pipe = _take_stdin() if provisional else -1

    @contextmanager
    def awaiting_confirmation(self) -> Iterator[None]:
        """Cancel the current task if the starter exits without confirming."""
        if self.is_confirmed:
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def read_answer() -> None:
            loop.remove_reader(self._pipe)
            self.is_confirmed = bool(os.read(self._pipe, 1))
            if not self.is_confirmed:
                log.warning(
                    "the process that started the engine has exited without confirming: removing everything again"
                )
                self.is_withdrawn = True
                task.cancel()

        loop.add_reader(self._pipe, read_answer)
        try:
            yield
        finally:
            loop.remove_reader(self._pipe)


def _take_stdin() -> int:
    """Keep standard input to the engine: a child process could read the confirmation."""
    pipe = os.dup(0)
    with open(os.devnull) as null:  # noqa: PTH123
        os.dup2(null.fileno(), 0)
    return pipe
