"""Incremental parser of server-sent events (WHATWG HTML)."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_LINE = 64 * 1024 * 1024
"""In characters."""


@dataclass(frozen=True)
class ServerSentEvent:
    data: str
    id: str = ""
    """Id of the last event that had one."""
    event: str = "message"


class EventParser:
    """Parses events; an incomplete event at the end is dropped."""

    def __init__(self, *, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry_s: float | None = None
        """Reconnection delay requested by the server."""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._text: list[str] = []
        self._length = 0
        self._ended_in_cr = False
        self._id = last_id
        self._event = ""
        self._data: list[str] = []

    def feed(self, content: bytes) -> Iterator[ServerSentEvent]:
        """Feed bytes; yield the completed events."""
        for line in self._lines(self._decoder.decode(content)):
            if line:
                self._take(line)
            elif (event := self._dispatch()) is not None:
                yield event

    def _lines(self, text: str) -> Iterator[str]:
        if not text:
            return
        if self._ended_in_cr and text.startswith("\n"):
            text = text[1:]
        self._ended_in_cr = text.endswith("\r")
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            whole = "".join((*self._text, line))
            self._text.clear()
            yield whole
        if rest:
            self._text.append(rest)
        self._measure(len(rest) if lines else self._length + len(rest))

    def _measure(self, length: int) -> None:
        self._length = length
        if length > LONGEST_LINE:
            raise ValueError(f"A line of the event stream has more than {LONGEST_LINE} characters.")

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_s = int(value) / 1000

    def _dispatch(self) -> ServerSentEvent | None:
        self.last_id = self._id
        data, self._data = self._data, []
        event, self._event = self._event, ""
        if not data:
            return None
        return ServerSentEvent("\n".join(data), self.last_id, event or "message")
