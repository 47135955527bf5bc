"""Lines of an execution, as E2B's clients read them."""

import asyncio
import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Line = dict[str, Any]

_BUFFERED = 1 << 20
"""Bytes that may wait for a slow client; then the kernel waits."""
_AT_ONCE = 16 << 10
_HOLD_S = 0.003
"""Fewer bytes wait so long for more: each chunk passes several programs until it is read."""
_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
END: Line = {"type": "end_of_execution"}
KEEPALIVE: Line = {"type": "keepalive"}


def stream_line(name: str, text: str) -> Line:
    """Describe text on `stdout` or `stderr`."""
    now = datetime.now(UTC).isoformat()  # noqa: TID251 - the sandbox has no other clock
    return {"type": name, "text": text, "timestamp": now}


def result_line(data: Mapping[str, Any], *, is_main: bool) -> Line:
    """Describe a value or a display in all its formats."""
    line: Line = {"type": "result", "is_main_result": is_main}
    for kind, value in data.items():
        if kind in _FIELDS:
            line[_FIELDS[kind]] = value
        else:
            line.setdefault("extra", {})[kind] = value
    text = line.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        line["text"] = text[1:-1]
    return line


def error_line(name: str, value: str, traceback: str = "") -> Line:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def encode(line: Line) -> bytes:
    """Encode as ASCII: some clients decode chunks one by one, others split lines at U+2028."""
    try:
        text = json.dumps(line, allow_nan=False)
    except ValueError:
        text = json.dumps(_with_null(line), allow_nan=False)
    return text.encode() + b"\n"


def _with_null(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _with_null(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Chunk:
    """Encoded lines that are sent together."""

    lines: bytes
    is_last: bool = False


class Output:
    """Encoded lines between a kernel and its client."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._is_finished = False
        self._is_discarded = False
        self._is_due = asyncio.Event()
        self._holding: asyncio.TimerHandle | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_full(self) -> bool:
        return not self._has_room.is_set()

    async def put(self, line: Line) -> None:
        """Add a line; wait first while the client reads slower than the kernel writes."""
        await self._has_room.wait()
        self._append(line)

    def finish(self, *lines: Line) -> None:
        """Add the last lines."""
        if not self._is_finished:
            for line in (*lines, END):
                self._append(line)
            self._is_finished = True
            self._is_due.set()

    def discard(self) -> None:
        """Drop all lines from now on: nobody reads them."""
        self._is_discarded = True
        self._lines.clear()
        self._has_room.set()

    async def next(self, *, longest_s: float, otherwise: bytes = encode(KEEPALIVE)) -> Chunk:
        """Give the next lines, or `otherwise` after a while without any."""
        try:
            async with asyncio.timeout(longest_s):
                await self._is_due.wait()
        except TimeoutError:
            return Chunk(otherwise)
        self._is_due.clear()
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        lines = b"".join(self._lines)
        self._lines.clear()
        self._size = 0
        self._has_room.set()
        return Chunk(lines, is_last=self._is_finished)

    def _append(self, line: Line) -> None:
        if self._is_discarded or self._is_finished:
            return
        encoded = encode(line)
        self._lines.append(encoded)
        self._size += len(encoded)
        if self._size > _BUFFERED:
            self._has_room.clear()
        if self._size > _AT_ONCE:
            self._is_due.set()
        elif self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(_HOLD_S, self._is_due.set)
