"""Formats a log as lines with time, sandbox and source."""

from collections.abc import Iterator, Mapping

from sandbox_client.cli.logs.event_lines import describe_event, format_gap
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_time
from sandbox_client.console.escape import escape_controls
from sandbox_client.events import LogItem
from sandbox_client.models import LogEvent, LogGap, LogRecord, OutputPiece

_ID_END = 6
_WIDEST_SOURCE = 14
_COLOURS = {
    "events": "cyan",
    "command": "green",
    "service": "magenta",
    "agent": "blue",
    "code": "yellow",
}


class LogLines:
    """Formats log items; the start of an unfinished line is held back until its end."""

    def __init__(self, output: Output, labels: Mapping[str, str]) -> None:
        self._output = output
        self._labels = labels
        self._widest = max(map(len, labels.values()), default=0)
        self._begun: dict[tuple[str, str], tuple[LogRecord, str]] = {}

    def of(self, item: LogItem) -> Iterator[str]:
        match item:
            case LogGap():
                yield format_gap(item)
            case LogEvent():
                yield self._line(item, f"{item.type}  {describe_event(item)}")
            case LogRecord(type="stdout" | "stderr"):
                yield from self._of_output(item)
            case LogRecord(type="result" | "error"):
                yield from self._rest_of(item.command_id)
                for line in _shown(item).rstrip().split("\n"):
                    yield self._line(item, line)
            case LogRecord():
                yield from self._rest_of(item.command_id)
                yield self._line(item, f"[{_note(item)}]")

    def rest(self) -> Iterator[str]:
        """Yield the unfinished lines."""
        for record, text in self._begun.values():
            yield self._line(record, text)
        self._begun.clear()

    def _rest_of(self, command_id: str) -> Iterator[str]:
        for key in [key for key in self._begun if key[0] == command_id]:
            yield self._line(*self._begun.pop(key))

    def _of_output(self, record: LogRecord) -> Iterator[str]:
        key = (record.command_id, record.type)
        _, begun = self._begun.pop(key, (record, ""))
        *lines, rest = (begun + _text(record)).split("\n")
        for line in lines:
            yield self._line(record, line.removesuffix("\r"))
        if rest:
            self._begun[key] = (record, rest)

    def _line(self, item: LogEvent | LogRecord, text: str) -> str:
        time = self._output.paint(format_time(item.at), "dim")
        label = self._labels.get(item.sandbox_id or "", "").ljust(self._widest)
        named = f"{label}  " if self._widest else ""
        source = self._output.paint(
            _source(item).ljust(_WIDEST_SOURCE), _COLOURS.get(item.source, "dim")
        )
        return f"{time}  {named}{source}  {escape_controls(text, keep=chr(9))}"


def _source(item: LogEvent | LogRecord) -> str:
    if isinstance(item, LogEvent):
        return item.source
    return escape_controls(f"{item.source} {item.name or item.command_id[-_ID_END:]}")


def _text(record: LogRecord) -> str:
    piece = OutputPiece(
        type=record.type, offset=0, text=record.text, base64=record.base64, at=record.at
    )
    return piece.decoded


def _shown(record: LogRecord) -> str:
    """Describe a result or an exception of code."""
    if record.error is not None:
        return record.error.traceback or f"{record.error.name}: {record.error.value}"
    text = (record.data or {}).get("text")
    return text if isinstance(text, str) else f"[{', '.join(record.sizes or {}) or 'a result'}]"


def _note(record: LogRecord) -> str:
    match record.type:
        case "gap":
            return "output missing" if record.size is None else f"{record.size} bytes discarded"
        case "exit" if record.exit_code is not None:
            return f"exited with {record.exit_code}"
        case "exit":
            return f"{record.state}: {record.reason}"
    return record.type
