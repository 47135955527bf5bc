"""Converts executions of code to wire models."""

import json
from typing import Any

from sandbox_client.models import (
    CodeError,
    CodeExecutionRead,
    CodeExecutionState,
    CodeOutcome,
    CodeResult,
    OutputCut,
)
from sandbox_server.db.models import Command
from sandbox_server.interpreters.execution_records import ExecutionRecords
from sandbox_server.interpreters.source import state_of
from sandbox_server.log.records import Record, RecordType
from sandbox_server.log.serialize import Cut, inline_formats, transcribe

_LONGEST_LISTED = 1000
_INLINE_BYTES = 8 * 2**20

_SAME = (
    *("id", "sandbox_id", "state_reason", "stdout_size", "stderr_size"),
    *("created_at", "started_at", "ended_at", "expires_at"),
)


def view_execution(row: Command) -> CodeExecutionRead:
    fields = _fields_of(row)
    if len(row.cmd) > _LONGEST_LISTED:
        fields["code"] = row.cmd[:_LONGEST_LISTED] + "…"
    return CodeExecutionRead(**fields)


def view_outcome(row: Command, records: ExecutionRecords) -> CodeOutcome:
    """Convert an execution with its results and both ends of its output."""
    stdout = transcribe(records.output, RecordType.STDOUT, size=row.stdout_size)
    stderr = transcribe(records.output, RecordType.STDERR, size=row.stderr_size)
    by_type: dict[RecordType, list[Record]] = {}
    for record in records.outcome:
        by_type.setdefault(record.type, []).append(record)
    error = next(iter(by_type.get(RecordType.ERROR, [])), None)
    end = next(iter(by_type.get(RecordType.EXIT, [])), None)
    return CodeOutcome(
        **_fields_of(row),
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_cut=_cut(stdout.cut),
        stderr_cut=_cut(stderr.cut),
        results=_results(by_type.get(RecordType.RESULT, [])),
        error=None if error is None else CodeError(**json.loads(error.content)),
        execution_count=None if end is None else end.data.get("execution_count"),
    )


def _results(records: list[Record]) -> list[CodeResult]:
    room, results = _INLINE_BYTES, []
    for record in records:
        data = inline_formats(record, room=room)
        room -= sum(record.data["sizes"][name] for name in data)
        results.append(CodeResult(data=data, **record.data))
    return results


def _fields_of(row: Command) -> dict[str, Any]:
    code = row.code or {}
    return {name: getattr(row, name) for name in _SAME} | {
        "state": CodeExecutionState(state_of(row.state, row.exit_code)),
        "code": row.cmd,
        "language": code.get("language"),
        "context_id": code.get("context_id"),
        "timeout_s": 0 if row.timeout is None else row.timeout.total_seconds(),
    }


def _cut(cut: Cut | None) -> OutputCut | None:
    return None if cut is None else OutputCut(offset=cut.offset, size=cut.size)
