"""How much a tool says at once: what is more costs agents their context, and is cut where it says so."""

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_CHARACTERS = 50_000
MOST_OF_A_LINE = 2_000
# With what is around it less than 1 MiB: of a longer message the official clients lose all.
MOST_OF_A_MESSAGE = 1_000_000
MOST_IMAGE_BYTES = MOST_OF_A_MESSAGE * 3 // 4  # which are a third more as base64


def cut_middle(text: str, *, at_most: int = MOST_CHARACTERS) -> str:
    """Keep the beginning and the end of a text, and say between them how much is missing."""
    if len(text) <= at_most:
        return text
    head = at_most // 2
    tail = at_most - head
    return f"{text[:head]}\n[… {len(text) - at_most} characters cut …]\n{text[-tail:]}"


def cut_end(text: str, *, at_most: int = MOST_CHARACTERS, rest: str = "") -> str:
    """Keep the beginning of a text, and say how much is missing and by `rest` how to get it."""
    if len(text) <= at_most:
        return text
    return f"{text[:at_most]}\n[… {len(text) - at_most} characters cut{rest and '; '}{rest}]"


def cut_line(line: str, *, length: int | None = None, at_most: int = MOST_OF_A_LINE) -> str:
    """Keep the beginning of a line, of which there may be more than is given, and say in it how much is missing."""
    length = length or len(line)
    if length <= at_most:
        return line
    return f"{line[:at_most]} [… {length - at_most} characters cut]"


@dataclass
class BoundedLines:
    """Lines of an answer, until it has as many as it may."""

    at_most: int
    lines: list[str] = field(default_factory=list)
    is_cut: bool = False
    _room: int = MOST_CHARACTERS

    def add(self, line: str) -> bool:
        """Add a line; whether there was room for it."""
        self._room -= len(line) + 1
        if len(self.lines) == self.at_most or (self._room < 0 and self.lines):
            self.is_cut = True
            return False
        self.lines.append(line)
        return True

    def extend(self, lines: Iterable[str]) -> "BoundedLines":
        """Add as many of the lines as there is room for."""
        for line in lines:
            if not self.add(line):
                break
        return self

    def tell(self, *, none: str, more: str) -> str:
        """Give them as one text, with `none` where there are none, and `more` where some are missing."""
        if not self.lines:
            return f"[{none}]"
        notes = [f"[Cut after {len(self.lines):,} lines. {more}]"] if self.is_cut else []
        return "\n".join([*self.lines, *notes])
