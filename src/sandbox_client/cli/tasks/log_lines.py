"""Formats the log of a task: stages stand out, and messages of agents are summarized."""

from collections.abc import Iterator

from sandbox_client.cli.logs.log_lines import LogLines
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_time
from sandbox_client.cli.tasks.agent_messages import AgentLines
from sandbox_client.console.escape import escape_controls
from sandbox_client.events import LogItem
from sandbox_client.models import LogEvent, LogRecord

_COLOURS = {
    "waiting-for-user": "yellow",
    "failed": "red",
    "timed-out": "red",
    "cancelled": "red",
    "in-review": "green",
    "merged": "green",
    "done": "green",
}
# The stage says the same; a run extends its sandbox's deadline all the time.
_LEFT_OUT = frozenset({"task.waiting", "task.ended", "sandbox.deadline_changed"})


class TaskLogLines:
    """Formats items of a task's log as lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lines = LogLines(output, {})
        self._agents: dict[str, AgentLines] = {}

    def of(self, item: LogItem) -> Iterator[str]:
        match item:
            case LogEvent(type="task.stage"):
                yield self._stage(item)
            case LogEvent() if item.type in _LEFT_OUT:
                return
            case LogRecord(source="agent", type="stdout"):
                yield from self._agent(item)
            case _:
                yield from self._lines.of(item)

    def rest(self) -> Iterator[str]:
        """Yield the unfinished lines."""
        yield from self._lines.rest()

    def _stage(self, event: LogEvent) -> str:
        stage = str(event.data.get("stage"))
        time = self._output.paint(format_time(event.at), "dim")
        name = self._output.paint(stage, _COLOURS.get(stage, "cyan"))
        reason = escape_controls(event.reason or "").strip()
        return f"{time}  ── {name}  {reason}"

    def _agent(self, record: LogRecord) -> Iterator[str]:
        """Replace the agent's JSON by one line per message."""
        agent = self._agents.setdefault(record.command_id, AgentLines())
        for text in agent.feed(record.text or ""):
            shown = record.model_copy(update={"text": f"{text}\n", "base64": None})
            yield from self._lines.of(shown)
