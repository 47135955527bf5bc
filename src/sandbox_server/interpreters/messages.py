"""Messages of the code interpreter: JSON objects, one per line. They are not trusted."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_LINE = 16 * 2**20
LARGEST_FORMAT = 8 * 2**20

BINARY = frozenset({"png", "jpeg", "pdf"})
STRUCTURED = frozenset({"json", "data", "chart"})
TEXTS = frozenset({"text", "html", "markdown", "svg", "latex", "javascript"})

_MOST_FORMATS = 40
_LONGEST_NAME = 100
_LONGEST_ERROR = 64 * 1024


@dataclass(frozen=True)
class TooLong:
    """A line of this many bytes was skipped."""

    size: int


class LineReader:
    """Cuts a stream of bytes into lines; longer ones are skipped without being kept."""

    def __init__(self, *, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            if self._size:
                yield TooLong(self._size) if self._is_too_long else b"".join(self._parts)
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._is_too_long:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    @property
    def _is_too_long(self) -> bool:
        return self._size > self._longest


@dataclass(frozen=True)
class Result:
    """A result with its formats. Those that are too large are only named, with their sizes."""

    formats: Mapping[str, Any]
    sizes: Mapping[str, int]
    dropped: Mapping[str, int]
    is_main: bool

    @property
    def content(self) -> bytes:
        return json.dumps(dict(self.formats), separators=(",", ":")).encode()


def parse_message(line: bytes) -> Mapping[str, Any]:
    """Parse a line; an invalid one is an empty message."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def output_of(message: Mapping[str, Any]) -> bytes:
    text = message.get("text")
    return text.encode(errors="replace") if isinstance(text, str) else b""


def result_of(message: Mapping[str, Any], *, room: int) -> Result:
    """Read a result, of which formats of at most `room` bytes in all are kept."""
    formats: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for name, value in _formats_of(message):
        size = _size_of(name, value)
        if size is None:
            continue
        if size > min(room, LARGEST_FORMAT):
            dropped[name] = size
        else:
            formats[name], sizes[name] = value, size
            room -= size
    return Result(formats, sizes, dropped, message.get("is_main_result") is True)


def error_of(message: Mapping[str, Any]) -> bytes:
    """Read the exception that ended the code, as JSON."""
    fields = {name: _text(message.get(name)) for name in ("name", "value", "traceback")}
    return json.dumps(fields, separators=(",", ":")).encode()


def file_of(name: str, value: Any) -> bytes:
    """Return the content of a format as a file."""
    if name in BINARY:
        return base64.b64decode(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False).encode()


def _formats_of(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    extra = message.get("extra")
    own = {name: message.get(name) for name in sorted(BINARY | STRUCTURED | TEXTS)}
    others = extra if isinstance(extra, dict) else {}
    for name, value in list({**others, **own}.items())[-_MOST_FORMATS:]:
        if value is not None and len(name) <= _LONGEST_NAME and name.isprintable():
            yield _clean(name), _clean(value)


def _size_of(name: str, value: Any) -> int | None:
    """Return the size of a format as a file; None if it is not one."""
    try:
        return len(file_of(name, value))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    if len(text) > _LONGEST_ERROR:
        text = f"{text[: _LONGEST_ERROR // 2]}\n…\n{text[-_LONGEST_ERROR // 2 :]}"
    return str(_clean(text))


def _clean(value: Any) -> Any:
    """Replace unpaired surrogates, which JSON may contain and UTF-8 may not."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [_clean(each) for each in value]
        case dict():
            return {_clean(name): _clean(each) for name, each in value.items()}
        case _:
            return value
