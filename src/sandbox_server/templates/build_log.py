import re
from dataclasses import dataclass
from typing import Self

_HEAD = 64 * 1024
_TAIL = 192 * 1024


# E2B's lines that name the current step, unlike the output of the step.
_STEP = re.compile(
    r"^(?:CACHED )?\[builder (\d+)/(\d+)\] (?!\[std)(.*?)(?: \[[0-9a-f]{8,}\])?$", re.MULTILINE
)
_BASE = re.compile(r"^\[base\] (.*)$", re.MULTILINE)
_LONGEST_STEP = 200


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    """A part of a log; it starts after the requested offset if the text there was dropped."""

    offset: int
    text: str
    next_offset: int


@dataclass(frozen=True, kw_only=True)
class BuildLog:
    """A build's log, limited to its head and tail; sizes are in characters."""

    head: str = ""
    tail: str = ""
    size: int = 0

    def append(self, text: str, *, head: int = _HEAD, tail: int = _TAIL) -> Self:
        """Append text; keeps at most `head` and `tail` characters."""
        free = max(0, head - len(self.head)) if len(self.head) == self.size else 0
        end = self.tail + text[free:]
        return type(self)(
            head=self.head + text[:free], tail=end[-tail:], size=self.size + len(text)
        )

    def find_step(self) -> str | None:
        """Describe the progress by the last step in the log."""
        steps = _STEP.findall(self.tail) or _STEP.findall(self.head)
        if not steps:
            base = _BASE.findall(self.tail or self.head)
            return base[-1][:_LONGEST_STEP] if base else None
        number, count, step = steps[-1]
        return f"step {number} of {count}, {step.strip()[:_LONGEST_STEP]}"

    def read(self, offset: int) -> LogChunk:
        """Return the text from the offset on, up to the dropped part."""
        tail_at = self.size - len(self.tail)
        if tail_at == len(self.head):
            at = min(offset, self.size)
            return LogChunk(offset=at, text=(self.head + self.tail)[at:], next_offset=self.size)
        if offset < len(self.head):
            return LogChunk(offset=offset, text=self.head[offset:], next_offset=len(self.head))
        at = min(max(offset, tail_at), self.size)
        return LogChunk(offset=at, text=self.tail[at - tail_at :], next_offset=self.size)
