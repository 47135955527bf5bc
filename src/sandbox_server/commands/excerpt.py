from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sandbox_server.log.records import Record, RecordType

_MAX_CHARACTER_BYTES = 4
_CONTINUATIONS = range(0x80, 0xC0)  # bytes that no character of UTF-8 begins with


@dataclass(frozen=True)
class Excerpt:
    """Part of a stream, and the offset at which the next part begins."""

    records: tuple[Record, ...]
    next_offset: int


def excerpt(records: Iterable[Record], *, offset: int, limit: int) -> Excerpt:
    """Return at most `limit` bytes of a stream's records, from `offset`."""
    cut = tuple(_cut_out(records, offset, limit))
    return Excerpt(cut, max([offset, *map(_end_of, cut)]))


def _cut_out(records: Iterable[Record], offset: int, left: int) -> Iterator[Record]:
    for record in records:
        if left <= 0:
            return
        rest = _skip_before(record, offset)
        if record.type is RecordType.GAP:
            yield rest
            continue
        content = _truncate(rest.content, left)
        yield replace(rest, content=content)
        left = 0 if len(content) < len(rest.content) else left - len(content)


def _skip_before(record: Record, offset: int) -> Record:
    skipped = offset - record.offset
    if skipped <= 0:
        return record
    if record.type is not RecordType.GAP:
        return replace(record, offset=offset, content=record.content[skipped:])
    size = record.data.get("size")
    if size is None:
        return record
    return replace(record, offset=offset, data={**record.data, "size": size - skipped})


def _end_of(record: Record) -> int:
    if record.type is RecordType.GAP:
        return record.offset + (record.data.get("size") or 0)
    return record.offset + len(record.content)


def _truncate(content: bytes, limit: int) -> bytes:
    """Truncate at the end of a character, unless a single character exceeds the limit."""
    if len(content) <= limit:
        return content
    for end in range(limit, max(0, limit - _MAX_CHARACTER_BYTES), -1):
        if content[end] not in _CONTINUATIONS:
            return content[:end]
    return content[:limit]
