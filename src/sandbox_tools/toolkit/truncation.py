"""Limits of tool results, which protect the model's context. Truncation is always marked."""

from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_CHARACTERS = 50_000
MAX_LINE_CHARACTERS = 2_000
# With its envelope less than 1 MiB: the official clients drop longer messages entirely.
MAX_MESSAGE_BYTES = 1_000_000
MAX_IMAGE_BYTES = MAX_MESSAGE_BYTES * 3 // 4  # base64 adds a third


def truncate_middle(text: str, *, limit: int = MAX_CHARACTERS) -> str:
    """Keep the beginning and the end, with the number of characters omitted between them."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters truncated …]\n{text[-tail:]}"


def truncate_end(text: str, *, limit: int = MAX_CHARACTERS, rest: str = "") -> str:
    """Keep the beginning, followed by the number of characters omitted and `rest`, how to get them."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} characters truncated{rest and '; '}{rest}]"


def truncate_line(line: str, *, length: int | None = None, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Keep the beginning of a line; `length` is its full length if `line` is already a part."""
    length = length or len(line)
    if length <= limit:
        return line
    return f"{line[:limit]} [… {length - limit} characters truncated]"


@dataclass
class TruncatedLines:
    """Lines of a result, up to a number of lines and characters."""

    limit: int
    lines: list[str] = field(default_factory=list)
    is_truncated: bool = False
    _room: int = MAX_CHARACTERS

    def add(self, line: str) -> bool:
        """Add a line; return whether it fit."""
        self._room -= len(line) + 1
        if len(self.lines) == self.limit or (self._room < 0 and self.lines):
            self.is_truncated = True
            return False
        self.lines.append(line)
        return True

    def extend(self, lines: Iterable[str]) -> "TruncatedLines":
        """Add lines until one does not fit."""
        for line in lines:
            if not self.add(line):
                break
        return self

    def render(self, *, none: str, more: str) -> str:
        """Join the lines; `none` replaces an empty result, `more` says how to get omitted lines."""
        if not self.lines:
            return f"[{none}]"
        notes = (
            [f"[Truncated after {len(self.lines):,} lines. {more}]"] if self.is_truncated else []
        )
        return "\n".join([*self.lines, *notes])
