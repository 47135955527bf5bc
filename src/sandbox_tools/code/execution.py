"""Runs code in the interpreter of this sandbox, over its protocol: a JSON object per line."""

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

_LONGEST_LINE = 16 << 20
_LARGEST_OUTPUT = 1 << 20
_MOST_RESULTS = 50


class Refused(Exception):
    """The interpreter answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Lost(Exception):
    """The interpreter cannot be reached, or closed the connection."""


@dataclass
class Stream:
    """Text of stdout or stderr; of a long one the beginning and the end."""

    parts: list[str] = field(default_factory=list)
    size: int = 0
    omitted: int = 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)
        if self.size > 2 * _LARGEST_OUTPUT:
            whole = "".join(self.parts)
            half = _LARGEST_OUTPUT // 2
            head, tail = whole[:half], whole[-half:]
            self.omitted += len(whole) - len(head) - len(tail)
            self.parts, self.size = [head, tail], len(head) + len(tail)

    def __str__(self) -> str:
        text = "".join(self.parts)
        if not self.omitted:
            return text
        half = _LARGEST_OUTPUT // 2
        return f"{text[:half]}\n[… {self.omitted} characters discarded …]\n{text[half:]}"


@dataclass
class Execution:
    """What is known of an execution so far."""

    stdout: Stream = field(default_factory=Stream)
    stderr: Stream = field(default_factory=Stream)
    results: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    has_ended: bool = False
    last_line: str = ""

    def read(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "stdout" | "stderr" as stream:
                text = str(message.get("text", ""))
                (self.stdout if stream == "stdout" else self.stderr).add(text)
                self.last_line = text.strip().rpartition("\n")[2][:200] or self.last_line
            case "result" if len(self.results) < _MOST_RESULTS:
                self.results.append(message)
            case "error":
                self.error = message
            case "end_of_execution":
                self.has_ended = True


async def run(
    code: str, *, language: str | None, context_id: str | None, port: int
) -> AsyncGenerator[dict[str, Any], None]:
    """Run code and yield the interpreter's messages. Closing the iterator interrupts the code."""
    import httpx2  # noqa: PLC0415 - costs memory that an idle tool server does not need

    body = {"code": code, "language": language, "context_id": context_id}
    timeout = httpx2.Timeout(None, connect=5)
    try:
        async with (
            httpx2.AsyncClient(timeout=timeout, trust_env=False) as client,
            client.stream("POST", f"http://127.0.0.1:{port}/execute", json=body) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                reason = (await response.aread()).decode(errors="replace")[:500]
                raise Refused(response.status_code, reason)
            lines = _Lines()
            async for data in response.aiter_bytes():
                for message in lines.feed(data):
                    yield message
    except httpx2.HTTPError as error:
        raise Lost(str(error)) from error


class _Lines:
    """Cuts the stream into lines; too long ones are skipped."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            if 0 < self._size <= _LONGEST_LINE:
                yield json.loads(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= _LONGEST_LINE:
            self._parts.append(part)
        else:
            self._parts.clear()
