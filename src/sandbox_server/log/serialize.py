"""Serializes records of a command's log as JSON objects with a `type`."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server.log.records import Record, RecordType

OUTPUT = frozenset({RecordType.STDOUT, RecordType.STDERR})

INLINE_FORMAT = 2**20
"""Largest format of a result that is part of an event; larger ones are read as files."""


@dataclass(frozen=True)
class Cut:
    """Missing bytes of a stream: offset of the first one, and their number if known."""

    offset: int
    size: int | None

    def __str__(self) -> str:
        # If the number is unknown, probably nothing is missing, and a marker would corrupt output that is parsed.
        return "" if self.size is None else f"\n[{self.size} bytes are missing here]\n"


@dataclass(frozen=True)
class Transcript:
    """A stream as one text, with a marker line for each known gap."""

    text: str
    cut: Cut | None


def serialize(record: Record) -> dict[str, Any]:
    """Convert a record to JSON. Bytes that are not UTF-8 are encoded as base64."""
    fields: dict[str, Any] = {"type": record.type.value}
    if record.type in OUTPUT:
        fields |= {"offset": record.offset, **content_of(record.content)}
    elif record.type is RecordType.STARTED:
        fields["command_id"] = record.command_id
    elif record.type is RecordType.RESULT:
        fields["data"] = inline_formats(record)
    elif record.type is RecordType.ERROR:
        fields["error"] = json.loads(record.content)
    elif record.type is RecordType.GAP:
        fields |= {"stream": None, "offset": record.offset, "size": None, "reason": None}
    return fields | dict(record.data) | {"at": record.at.isoformat().replace("+00:00", "Z")}


def inline_formats(record: Record, *, room: int = INLINE_FORMAT) -> dict[str, Any]:
    """Return the formats of a result that are small enough to be part of an event or a list."""
    formats: dict[str, Any] = json.loads(record.content)
    sizes: dict[str, int] = record.data["sizes"]
    small = {}
    for name, value in formats.items():
        if sizes[name] <= min(room, INLINE_FORMAT):
            small[name] = value
            room -= sizes[name]
    return small


def content_of(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def transcribe(records: Iterable[Record], stream: RecordType, *, size: int) -> Transcript:
    """Join the retained parts of a stream of `size` bytes."""
    pieces = list(_pieces(records, stream, size))
    cuts = [piece for piece in pieces if isinstance(piece, Cut)]
    text = "".join(
        str(piece) if isinstance(piece, Cut) else piece.decode(errors="replace") for piece in pieces
    )
    return Transcript(text, _merge(cuts) if cuts else None)


def _pieces(records: Iterable[Record], stream: RecordType, size: int) -> Iterator[bytes | Cut]:
    piece, position = bytearray(), 0
    for record in records:
        cut = _cut_before(record, stream, position)
        if cut is not None:
            yield bytes(piece)
            yield cut
            piece.clear()
        if record.type is stream:
            piece += record.content
            position = record.offset + len(record.content)
    yield bytes(piece)
    if position < size:
        yield Cut(position, size - position)


def _cut_before(record: Record, stream: RecordType, position: int) -> Cut | None:
    if record.type is stream and record.offset > position:
        return Cut(position, record.offset - position)
    if record.type is not RecordType.GAP or record.data.get("size") is not None:
        return None
    return Cut(position, None) if record.data.get("stream") in {None, stream} else None


def _merge(cuts: Sequence[Cut]) -> Cut:
    sizes = [cut.size for cut in cuts if cut.size is not None]
    return Cut(cuts[0].offset, sum(sizes) if len(sizes) == len(cuts) else None)
