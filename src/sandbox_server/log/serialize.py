"""Records of a command's log as readers are told them: objects of JSON with their `type` inside."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server.log.records import Record, RecordType

OUTPUT = frozenset({RecordType.STDOUT, RecordType.STDERR})


@dataclass(frozen=True)
class Cut:
    """Bytes of a stream that are missing: where the first of them was, and how many there were, if that is known."""

    offset: int
    size: int | None

    def __str__(self) -> str:
        # Where nobody knows it is most likely nothing, and a line would be in the way of who reads the output as data.
        return "" if self.size is None else f"\n[{self.size} bytes are missing here]\n"


@dataclass(frozen=True)
class Transcript:
    """A stream as one text, with a line wherever something is known to be missing."""

    text: str
    cut: Cut | None


def tell(record: Record) -> dict[str, Any]:
    """Tell one record. Bytes that are no text travel as base64."""
    told: dict[str, Any] = {"type": record.type.value}
    if record.type in OUTPUT:
        told |= {"offset": record.offset, **content_of(record.content)}
    elif record.type is RecordType.STARTED:
        told["command_id"] = record.command_id
    elif record.type is RecordType.GAP:
        told |= {"stream": None, "offset": record.offset, "size": None, "reason": None}
    return told | dict(record.data) | {"at": record.at.isoformat().replace("+00:00", "Z")}


def content_of(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def transcribe(records: Iterable[Record], stream: RecordType, *, size: int) -> Transcript:
    """Put together a stream of `size` bytes from what is kept of it."""
    runs = list(_runs(records, stream, size))
    cuts = [run for run in runs if isinstance(run, Cut)]
    text = "".join(
        str(run) if isinstance(run, Cut) else run.decode(errors="replace") for run in runs
    )
    return Transcript(text, _all_of(cuts) if cuts else None)


def _runs(records: Iterable[Record], stream: RecordType, size: int) -> Iterator[bytes | Cut]:
    run, position = bytearray(), 0
    for record in records:
        cut = _cut_before(record, stream, position)
        if cut is not None:
            yield bytes(run)
            yield cut
            run.clear()
        if record.type is stream:
            run += record.content
            position = record.offset + len(record.content)
    yield bytes(run)
    if position < size:
        yield Cut(position, size - position)


def _cut_before(record: Record, stream: RecordType, position: int) -> Cut | None:
    if record.type is stream and record.offset > position:
        return Cut(position, record.offset - position)
    if record.type is not RecordType.GAP or record.data.get("size") is not None:
        return None
    return Cut(position, None) if record.data.get("stream") in {None, stream} else None


def _all_of(cuts: Sequence[Cut]) -> Cut:
    sizes = [cut.size for cut in cuts if cut.size is not None]
    return Cut(cuts[0].offset, sum(sizes) if len(sizes) == len(cuts) else None)
