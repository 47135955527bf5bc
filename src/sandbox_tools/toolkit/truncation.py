"""How much a tool says at once: what is more costs agents their context, and is cut where it says so."""

from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_CHARACTERS = 50_000
MAX_LINE_CHARACTERS = 2_000
# With what is around it less than 1 MiB: of a longer message the official clients lose all.
MAX_MESSAGE_BYTES = 1_000_000
MAX_IMAGE_BYTES = MAX_MESSAGE_BYTES * 3 // 4  # which are a third more as base64


def truncate_middle(text: str, *, limit: int = MAX_CHARACTERS) -> str:
    """Keep the beginning and the end of a text, and say between them how much is missing."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters cut …]\n{text[-tail:]}"


def truncate_end(text: str, *, limit: int = MAX_CHARACTERS, rest: str = "") -> str:
    """Keep the beginning of a text, and say how much is missing and by `rest` how to get it."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} characters cut{rest and '; '}{rest}]"


def truncate_line(line: str, *, length: int | None = None, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Keep the beginning of a line, of which there may be more than is given, and say in it how much is missing."""
    length = length or len(line)
    if length <= limit:
        return line
    return f"{line[:limit]} [… {length - limit} characters cut]"


@dataclass
class TruncatedLines:
    """Lines of an answer, until it has as many as it may."""

    limit: int
    lines: list[str] = field(default_factory=list)
    is_truncated: bool = False
    _room: int = MAX_CHARACTERS

    def add(self, line: str) -> bool:
        """Add a line; whether there was room for it."""
        self._room -= len(line) + 1
        if len(self.lines) == self.limit or (self._room < 0 and self.lines):
            self.is_truncated = True
            return False
        self.lines.append(line)
        return True

    def extend(self, lines: Iterable[str]) -> "TruncatedLines":
        """Add as many of the lines as there is room for."""
        for line in lines:
            if not self.add(line):
                break
        return self

    def render(self, *, none: str, more: str) -> str:
        """Give them as one text, with `none` where there are none, and `more` where some are missing."""
        if not self.lines:
            return f"[{none}]"
        notes = [f"[Cut after {len(self.lines):,} lines. {more}]"] if self.is_truncated else []
        return "\n".join([*self.lines, *notes])
