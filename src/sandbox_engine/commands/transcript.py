import codecs
from collections import deque
from collections.abc import Callable

from sandbox_engine.commands.spool import Output, Stream

OnLine = Callable[[Stream, str], None]

_LONGEST_LINE = 1 << 14
_TAIL_CHARACTERS = 1 << 13


class StopReading(Exception):
    """Raised by a callback that needs no more lines."""


class Transcript:
    """Output of a command as text: passes on each line and keeps the last ones."""

    def __init__(self, on_line: OnLine | None = None) -> None:
        self._on_line = on_line
        self._decoders = {stream: _decoder() for stream in Stream}
        self._unfinished = dict.fromkeys(Stream, "")
        self._lines: deque[str] = deque()
        self._characters = 0

    def add(self, output: Output) -> None:
        """Add a piece of output; it may be cut at any byte."""
        self._take(output.stream, self._decoders[output.stream].decode(output.data))

    def close(self) -> None:
        """Flush lines without a newline at the end."""
        for stream, decoder in self._decoders.items():
            self._take(stream, decoder.decode(b"", final=True))
            if rest := self._unfinished[stream]:
                self._tell(stream, rest)

    @property
    def tail(self) -> str:
        """Return the last lines of both streams in the order of completion."""
        return "\n".join(self._lines)

    def _take(self, stream: Stream, text: str) -> None:
        *lines, rest = (self._unfinished[stream] + text).split("\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        self._unfinished[stream] = rest
        if self._on_line is None:  # a flood must not cost more than reading it
            lines = lines[-_TAIL_CHARACTERS:]
        for line in lines:
            self._tell(stream, line.removesuffix("\r"))

    def _tell(self, stream: Stream, line: str) -> None:
        self._lines.append(line)
        self._characters += len(line) + 1
        while self._characters > _TAIL_CHARACTERS and len(self._lines) > 1:
            self._characters -= len(self._lines.popleft()) + 1
        if self._on_line is not None:
            try:
                self._on_line(stream, line)
            except StopReading:
                self._on_line = None


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
