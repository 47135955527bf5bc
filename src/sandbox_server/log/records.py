"""Records of a command's log, in the form in which they are stored and streamed.

    started   data: pid                     the serialized record also has the command's id
    stdout    offset, content
    stderr    offset, content
    resized   data: cols, rows              terminals only; only the last one is kept
    result    data: number, sizes, …        executions of code only; content: the result's formats as JSON
    error     content: JSON                 executions of code only; name, value and traceback of the exception
    gap       data: stream, size, reason    bytes from `offset` on are missing; stream and size are null if unknown
    exit      data: state, exit_code, reason; of executions of code also execution_count

Output evicted from the middle of a stream becomes one gap under the number of the last evicted piece. A reader beyond
this number has missed nothing, and any other reader receives the gap once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class RecordType(StrEnum):
    """Type of a record."""

    STARTED = "started"
    STDOUT = "stdout"  # also all output of a terminal
    STDERR = "stderr"
    RESIZED = "resized"
    RESULT = "result"
    ERROR = "error"
    GAP = "gap"
    EXIT = "exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A piece of a command's output, cut between characters, or an event of the command."""

    seq: int
    command_id: str
    sandbox_id: str
    type: RecordType
    offset: int = 0
    """Offset of the piece's first byte in its stream."""
    content: bytes = b""
    data: Mapping[str, Any] = field(default_factory=dict)
    at: datetime
