import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sandbox_server.agents.line_assembler import LONGEST_LINE
from sandbox_server.db.models import Command
from sandbox_server.domain.agents import RunState, read_line, state_of_run
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import Record, RecordType

_LONGEST_OUTPUT = 256 * 1024
_LONGEST_NAME = 4096
_MOST_FILES = 1000
_NOT_FOUND = 127  # a shell's exit code for an unknown command
_MAX_STDERR = 2000


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """The result of a run that has ended."""

    state: RunState
    exit_code: int | None
    output: str
    cost: float | None = None
    session_id: str | None = None
    changed_files: Sequence[str] | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


async def find_result(output: CommandOutputRepository, run: Command) -> AgentResult | None:
    """Read the result from the last line of a run's output; None while it is running."""
    if run.state in COMMAND_LIVING:
        return None
    last = await output.list_last(run.id, RecordType.STDOUT, max_bytes=LONGEST_LINE)
    document = _last_line(last)
    if document.get("type") == "result":
        return _to_result(run, document)
    errors = await output.list_last(run.id, RecordType.STDERR, max_bytes=_MAX_STDERR)
    return AgentResult(
        state=state_of_run(run.state, run.exit_code or 1),
        exit_code=run.exit_code,
        output=_explain(run, _text_of(errors)),
    )


def _to_result(run: Command, document: dict[str, Any]) -> AgentResult:
    return AgentResult(
        state=state_of_run(run.state, run.exit_code),
        exit_code=_number(document.get("exit_code")),
        output=_text(document.get("output"), _LONGEST_OUTPUT) or "",
        cost=_cost(document.get("cost")),
        session_id=_text(document.get("session_id"), _LONGEST_NAME),
        changed_files=_names(document.get("changed_files")),
    )


def _explain(run: Command, errors: str) -> str:
    """Explain why there is no result."""
    if run.exit_code == _NOT_FOUND:
        return "No agent is installed in this sandbox. Create it from the template agent-full."
    if run.state is not CommandState.EXITED:
        return run.state_reason or "The run ended without a result; reason not recorded."
    stderr = f" Last error output: {errors}" if errors else ""
    return f"The agent exited without a result, with exit code {run.exit_code}.{stderr}"


def _last_line(records: Sequence[Record]) -> dict[str, Any]:
    content = b"".join(record.content for record in records).rstrip()
    return read_line(content.rpartition(b"\n")[2])


def _text_of(records: Sequence[Record]) -> str:
    content = b"".join(record.content for record in records)
    return content.decode(errors="replace").strip()[-_MAX_STDERR:]


def _text(value: Any, longest: int) -> str | None:
    if not isinstance(value, str):
        return None
    text = value.encode(errors="replace").decode()  # replaces lone surrogates
    return text if len(text) <= longest else f"{text[:longest]}…"


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
