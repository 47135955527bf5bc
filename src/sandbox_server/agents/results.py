import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sandbox_server.agents.lines import LONGEST_LINE
from sandbox_server.db.models import Command
from sandbox_server.domain.agents import RunState, read_line, state_of_run
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import Record, RecordType

_LONGEST_OUTPUT = 256 * 1024
_LONGEST_NAME = 4096
_MOST_FILES = 1000
_NOT_FOUND = 127  # what a shell says of a program that is not there
_LAST_WORDS = 2000


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """How a run ended."""

    state: RunState
    exit_code: int | None
    output: str
    cost: float | None = None
    session_id: str | None = None
    changed_files: Sequence[str] | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


async def find_result(output: CommandOutputRepository, run: Command) -> AgentResult | None:
    """Find how a run ended by the last that was said of it; of one that goes on there is none."""
    if run.state in COMMAND_LIVING:
        return None
    last = await output.list_last(run.id, RecordType.STDOUT, max_bytes=LONGEST_LINE)
    told = _last_line(last)
    if told.get("type") == "result":
        return _as_told(run, told)
    errors = await output.list_last(run.id, RecordType.STDERR, max_bytes=_LAST_WORDS)
    return AgentResult(
        state=state_of_run(run.state, run.exit_code or 1),
        exit_code=run.exit_code,
        output=_explain(run, _text_of(errors)),
    )


def _as_told(run: Command, told: dict[str, Any]) -> AgentResult:
    return AgentResult(
        state=state_of_run(run.state, run.exit_code),
        exit_code=_number(told.get("exit_code")),
        output=_text(told.get("output"), _LONGEST_OUTPUT) or "",
        cost=_cost(told.get("cost")),
        session_id=_text(told.get("session_id"), _LONGEST_NAME),
        changed_files=_names(told.get("changed_files")),
    )


def _explain(run: Command, errors: str) -> str:
    """Say why there is no result."""
    if run.exit_code == _NOT_FOUND:
        return "There is no agent in this sandbox: make it from the template agent-full."
    if run.state is not CommandState.EXITED:
        return run.state_reason or "It ended without a result, and nobody noted why."
    said = f" The last that it wrote: {errors}" if errors else ""
    return f"The agent's program ended without a result, with exit code {run.exit_code}.{said}"


def _last_line(records: Sequence[Record]) -> dict[str, Any]:
    content = b"".join(record.content for record in records).rstrip()
    return read_line(content.rpartition(b"\n")[2])


def _text_of(records: Sequence[Record]) -> str:
    content = b"".join(record.content for record in records)
    return content.decode(errors="replace").strip()[-_LAST_WORDS:]


def _text(value: Any, longest: int) -> str | None:
    if not isinstance(value, str):
        return None
    told = value.encode(errors="replace").decode()  # halves of characters are no text
    return told if len(told) <= longest else f"{told[:longest]}…"


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**31 else None


def _cost(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else None


def _names(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    names = [_text(each, _LONGEST_NAME) for each in value[:_MOST_FILES]]
    return [name for name in names if name is not None]
