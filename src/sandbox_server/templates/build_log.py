import re
from dataclasses import dataclass
from typing import Self

_HEAD = 64 * 1024
_TAIL = 192 * 1024


# As E2B says which step it has come to, and not what that writes.
_STEP = re.compile(
    r"^(?:CACHED )?\[builder (\d+)/(\d+)\] (?!\[std)(.*?)(?: \[[0-9a-f]{8,}\])?$", re.MULTILINE
)
_BASE = re.compile(r"^\[base\] (.*)$", re.MULTILINE)
_LONGEST_STEP = 200


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a log; where something was left out, it begins later than was asked for."""

    offset: int
    text: str
    next_offset: int


@dataclass(frozen=True, kw_only=True)
class BuildLog:
    """What a build says, by characters: of too much, the beginning and the end."""

    head: str = ""
    tail: str = ""
    size: int = 0

    def append(self, text: str, *, head: int = _HEAD, tail: int = _TAIL) -> Self:
        """Add to it; what is kept has `head` and `tail` characters at the most."""
        room = max(0, head - len(self.head)) if len(self.head) == self.size else 0
        end = self.tail + text[room:]
        return type(self)(
            head=self.head + text[:room], tail=end[-tail:], size=self.size + len(text)
        )

    def find_step(self) -> str | None:
        """Say how far it is, by the last step that it tells of."""
        steps = _STEP.findall(self.tail) or _STEP.findall(self.head)
        if not steps:
            base = _BASE.findall(self.tail or self.head)
            return base[-1][:_LONGEST_STEP] if base else None
        number, count, step = steps[-1]
        return f"step {number} of {count}, {step.strip()[:_LONGEST_STEP]}"

    def read(self, offset: int) -> Piece:
        """Give what there is from there on, up to what was left out."""
        tail_at = self.size - len(self.tail)
        if tail_at == len(self.head):
            at = min(offset, self.size)
            return Piece(offset=at, text=(self.head + self.tail)[at:], next_offset=self.size)
        if offset < len(self.head):
            return Piece(offset=offset, text=self.head[offset:], next_offset=len(self.head))
        at = min(max(offset, tail_at), self.size)
        return Piece(offset=at, text=self.tail[at - tail_at :], next_offset=self.size)
