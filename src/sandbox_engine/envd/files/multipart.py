from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

# The header of a part must fit a path of 4,096 bytes, each possibly written as %XX.
_HEADER_LIMIT = 16 * 1024

# Form encoders (browsers, httpx) escape these characters this way.
_ESCAPED = re.compile("%(0[0-9A-F]|1[0-9A-F]|22)")


class BadForm(ValueError):
    """The body is not a valid multipart form."""


@dataclass(frozen=True)
class PartStart:
    """Start of a part."""

    field: str
    filename: str | None


@dataclass(frozen=True)
class PartEnd:
    """End of a part."""


FormEvent = PartStart | bytes | PartEnd


async def read_form(body: AsyncIterator[bytes], content_type: str) -> AsyncIterator[FormEvent]:
    """Yield the parts of a form as they arrive: start, content in pieces, end."""
    _, options = parse_options_header(content_type)
    form = _Form()
    try:
        parser = MultipartParser(
            options.get(b"boundary", b""),
            {
                "on_part_begin": form.begin,
                "on_header_field": form.add_to_name,
                "on_header_value": form.add_to_value,
                "on_header_end": form.end_header,
                "on_headers_finished": form.end_headers,
                "on_part_data": form.add_data,
                "on_part_end": form.end_part,
                "on_end": form.end,
            },
            max_header_size=_HEADER_LIMIT,
        )
        async for received in body:
            parser.write(received)
            for happening in form.take():
                yield happening
    except FormParserError as error:
        raise BadForm(f"error parsing multipart form: {error}") from error
    if not form.is_complete:
        raise BadForm("error reading form: unexpected EOF")


class _Form:
    """Callbacks of the parser; collects events."""

    def __init__(self) -> None:
        self.is_complete = False
        self._events: list[FormEvent] = []
        self._name = self._value = b""
        self._disposition = b""

    def take(self) -> list[FormEvent]:
        happenings, self._events = self._events, []
        return happenings

    def begin(self) -> None:
        self._disposition = b""

    def add_to_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def end_headers(self) -> None:
        _, options = parse_options_header(self._disposition.decode("latin-1"))
        filename = options.get(b"filename")
        self._events.append(
            PartStart(
                field=_text(options.get(b"name", b"")),
                filename=None if filename is None else _text(filename),
            )
        )

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def end_part(self) -> None:
        self._events.append(PartEnd())

    def end(self) -> None:
        self.is_complete = True


def _text(octets: bytes) -> str:
    return _ESCAPED.sub(
        lambda match: chr(int(match[1], 16)), octets.decode(errors="surrogateescape")
    )
