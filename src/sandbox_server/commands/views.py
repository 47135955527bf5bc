"""Converts commands to wire models."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sandbox_client.models import (
    CommandOutcome,
    CommandRead,
    CommandState,
    OutputCut,
    OutputGap,
    OutputPart,
    OutputPiece,
)
from sandbox_server.commands.excerpt import excerpt
from sandbox_server.db.models import Command
from sandbox_server.log.records import Record, RecordType
from sandbox_server.log.serialize import Cut, serialize, transcribe

LONGEST_LISTED = 1000

_FIELDS = CommandRead.model_fields.keys() - {"timeout_s"}


def view_command(row: Command) -> CommandRead:
    fields = _fields_of(row)
    if len(row.cmd) > LONGEST_LISTED:
        fields["cmd"] = row.cmd[:LONGEST_LISTED] + "…"
    return CommandRead(**fields)


def view_outcome(row: Command, output: Sequence[Record]) -> CommandOutcome:
    """Convert a command with both ends of its output."""
    stdout = transcribe(output, RecordType.STDOUT, size=row.stdout_size)
    stderr = transcribe(output, RecordType.STDERR, size=row.stderr_size)
    return CommandOutcome(
        **_fields_of(row),
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_cut=_cut(stdout.cut),
        stderr_cut=_cut(stderr.cut),
    )


def view_part(
    row: Command, stream: RecordType, records: Sequence[Record], *, offset: int, limit: int
) -> OutputPart:
    """Convert a part of one stream that begins at an offset."""
    found = excerpt(records, offset=offset, limit=limit)
    of_stderr = stream is RecordType.STDERR
    size = row.stderr_size if of_stderr else row.stdout_size
    return OutputPart(
        items=[_item(record) for record in found.records],
        next_offset=found.next_offset,
        size=max(size, found.next_offset)
        if found.records
        else size,  # output may have been added since the row was read
        cut=row.stderr_cut if of_stderr else row.stdout_cut,
        state=CommandState(row.state),
    )


def _fields_of(row: Command) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _FIELDS}
    return fields | {"timeout_s": _seconds(row.timeout)}


def _item(record: Record) -> OutputPiece | OutputGap:
    kind = OutputGap if record.type is RecordType.GAP else OutputPiece
    return kind.model_validate(serialize(record))


def _cut(cut: Cut | None) -> OutputCut | None:
    return None if cut is None else OutputCut(offset=cut.offset, size=cut.size)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
