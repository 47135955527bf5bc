"""A command's log, as it is written and read. All that a reader is told is a record, so to read is to list them.

    started   data: pid                            readers are also told the command's id
    stdout    offset, content
    stderr    offset, content
    resized   data: cols, rows                     of a terminal; only the last time is kept
    gap       data: stream, size, reason    bytes from `offset` on are not kept; both null where nobody knows which
    exit      data: state, exit_code, reason

What falls out of the middle of a stream becomes one gap, under the number of the last piece that fell out: who has read
beyond that one missed nothing, and everybody else is told once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class RecordType(StrEnum):
    """What there is in a command's log. None is named `error`: browsers use that name for themselves."""

    STARTED = "started"
    STDOUT = "stdout"  # of a terminal: all that it showed
    STDERR = "stderr"
    RESIZED = "resized"
    GAP = "gap"
    EXIT = "exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A piece of a command's output, cut where characters are; or something that happened to it."""

    seq: int
    command_id: str
    sandbox_id: str
    type: RecordType
    offset: int = 0
    """Of the piece's first byte in its stream."""
    content: bytes = b""
    data: Mapping[str, Any] = field(default_factory=dict)
    at: datetime
