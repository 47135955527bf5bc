from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sandbox_server.log.records import Record, RecordType

_LONGEST_CHARACTER = 4
_MIDST = range(0x80, 0xC0)  # bytes that no character of UTF-8 begins with


@dataclass(frozen=True)
class Excerpt:
    """Part of a stream, and the offset at which the next one begins."""

    records: tuple[Record, ...]
    next_offset: int


def excerpt(records: Iterable[Record], *, offset: int, limit: int) -> Excerpt:
    """Cut out of one stream's records what it has from a byte on, no more than so many bytes."""
    told = tuple(_cut_out(records, offset, limit))
    return Excerpt(told, max([offset, *map(_end_of, told)]))


def _cut_out(records: Iterable[Record], offset: int, room: int) -> Iterator[Record]:
    for record in records:
        if room <= 0:
            return
        rest = _from(record, offset)
        if record.type is RecordType.GAP:
            yield rest
            continue
        content = _of_whole_characters(rest.content, room)
        yield replace(rest, content=content)
        room = 0 if len(content) < len(rest.content) else room - len(content)


def _from(record: Record, offset: int) -> Record:
    """Leave out what comes before the offset."""
    passed = offset - record.offset
    if passed <= 0:
        return record
    if record.type is not RecordType.GAP:
        return replace(record, offset=offset, content=record.content[passed:])
    size = record.data.get("size")
    if size is None:
        return record
    return replace(record, offset=offset, data={**record.data, "size": size - passed})


def _end_of(record: Record) -> int:
    if record.type is RecordType.GAP:
        return record.offset + (record.data.get("size") or 0)
    return record.offset + len(record.content)


def _of_whole_characters(content: bytes, most: int) -> bytes:
    """Cut text where a character ends, unless one alone is more than there is room for."""
    if len(content) <= most:
        return content
    for end in range(most, max(0, most - _LONGEST_CHARACTER), -1):
        if content[end] not in _MIDST:
            return content[:end]
    return content[:most]
