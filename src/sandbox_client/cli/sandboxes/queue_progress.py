"""Shows the position of a queued sandbox."""

import sys
from datetime import timedelta
from typing import Self

from sandbox_client.cli.output.durations import format_duration
from sandbox_client.cli.output.output import Output
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import SandboxRead

_REWRITE = "\r\033[K"


def describe_progress(record: SandboxRead) -> str:
    """Describe the state of a sandbox that is not running yet."""
    if record.queue is None:
        return f"The sandbox is {record.state}."
    place = f"Position {record.queue.position} in the queue: {record.queue.reason}"
    if record.queue.estimate_s is None:
        return place
    return f"{place} About {format_duration(timedelta(seconds=record.queue.estimate_s))} left."


class QueueProgress:
    """One status line on stderr: rewritten on a terminal, else printed again when it changes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_rewritten = sys.stderr.isatty() and not (output.is_quiet or output.as_json)
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_rewritten and self._last:
            sys.stderr.write(_REWRITE)
            sys.stderr.flush()

    def tell(self, record: SandboxRead) -> None:
        line = describe_progress(record)
        if line == self._last:
            return
        self._last = line
        if self._is_rewritten:
            sys.stderr.write(f"{_REWRITE}{escape_controls(line)}")
            sys.stderr.flush()
        else:
            self._output.note(line)
