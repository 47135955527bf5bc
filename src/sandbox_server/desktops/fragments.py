"""Fragmented MP4 (ISO/IEC 14496-12), as ffmpeg writes a recording while it grows.

ftyp moov               the head, which describes the track
moof mdat               a fragment: a second of video, or up to the next key frame
moof mdat …
mfra                    an index at the end, which is not kept

The bytes come from a sandbox, so nothing here trusts them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BOX_HEAD = 8
_LARGEST_BOX = 32 * 2**20
_LARGEST_PART = 2**20
_MOST_REFERENCES = 2**16 - 1
_IS_NOT_KEY = 0x10000
_BASE, _DESCRIPTION, _DURATION, _SIZE, _FLAGS = 0x1, 0x2, 0x8, 0x10, 0x20
_OFFSET, _FIRST_FLAGS, _SAMPLE_DURATION, _SAMPLE_SIZE, _SAMPLE_FLAGS, _SAMPLE_TIME = (
    *(0x1, 0x4, 0x100, 0x200),
    *(0x400, 0x800),
)


class InvalidRecording(Exception):
    """The file is not a fragmented MP4."""

    def __init__(self) -> None:
        super().__init__("The recording in the sandbox is not a fragmented MP4.")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Fragments in a row; times are in units of the track's timescale."""

    begins: int
    lasts: int
    is_key: bool
    size: int


@dataclass(frozen=True, kw_only=True)
class CutPart(Part):
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The complete parts of a piece of the file, its first `consumed` bytes."""

    head: bytes
    parts: list[CutPart]
    consumed: int


def cut(content: bytes) -> Cut:
    """Divide a piece of the file, which begins with a box, into parts that begin at key frames where possible."""
    try:
        return _cut(content)
    except (struct.error, IndexError, ValueError):
        raise InvalidRecording from None


def _cut(content: bytes) -> Cut:
    head, parts, consumed = b"", list[CutPart](), 0
    moof: tuple[int, int] | None = None
    for kind, start, end in _boxes(content, 0, len(content), is_growing=True):
        if kind == b"moof":
            moof = start, end
            continue
        if kind == b"ftyp":
            head = content[start:end]
            continue  # its moov may follow later
        if kind == b"moov":
            head += content[start:end]
        elif kind == b"mdat" and moof is not None:
            _add(parts, _fragment(content, *moof, end))
            moof = None
        consumed = end
    return Cut(head=head if consumed else b"", parts=parts, consumed=consumed)


def _add(parts: list[CutPart], fragment: CutPart) -> None:
    """Append a fragment to the last part, unless it begins a part of its own."""
    last = parts[-1] if parts else None
    if last is None or fragment.is_key or last.size + fragment.size > _LARGEST_PART:
        parts.append(fragment)
        return
    parts[-1] = CutPart(
        begins=last.begins,
        lasts=fragment.begins + fragment.lasts - last.begins,
        is_key=last.is_key,
        size=last.size + fragment.size,
        content=last.content + fragment.content,
    )


def _fragment(content: bytes, start: int, end_of_head: int, end: int) -> CutPart:
    traf = _find(content, start + 8, end_of_head, b"traf")
    begins = _decode_time(content, _find(content, *traf, b"tfdt")[0])
    defaults = _defaults(content, _find(content, *traf, b"tfhd")[0])
    lasts, is_key = _run(content, *_find(content, *traf, b"trun"), defaults)
    size = end - start
    return CutPart(begins=begins, lasts=lasts, is_key=is_key, size=size, content=content[start:end])


def _decode_time(content: bytes, at: int) -> int:
    time: int = struct.unpack_from(">Q" if content[at] else ">I", content, at + 4)[0]
    if time >= 2**62:
        raise ValueError("a time that is no time")
    return time


def _defaults(content: bytes, at: int) -> tuple[int, int]:
    """Read duration and flags of the samples that have none of their own."""
    flags = struct.unpack_from(">I", content, at)[0] & 0xFFFFFF
    at += 8
    at += 8 * bool(flags & _BASE) + 4 * bool(flags & _DESCRIPTION)
    duration = struct.unpack_from(">I", content, at)[0] if flags & _DURATION else 0
    at += 4 * bool(flags & _DURATION) + 4 * bool(flags & _SIZE)
    return duration, struct.unpack_from(">I", content, at)[0] if flags & _FLAGS else 0


def _run(content: bytes, at: int, end: int, defaults: tuple[int, int]) -> tuple[int, bool]:
    """Return the duration of a run of samples, and whether its first is a key frame."""
    head, count = struct.unpack_from(">2I", content, at)
    flags, (duration, first) = head & 0xFFFFFF, defaults
    at += 8 + 4 * bool(flags & _OFFSET)
    if flags & _FIRST_FLAGS:
        first = struct.unpack_from(">I", content, at)[0]
        at += 4
    fields = (_SAMPLE_DURATION, _SAMPLE_SIZE, _SAMPLE_FLAGS, _SAMPLE_TIME)
    width = 4 * sum(bool(flags & field) for field in fields)
    if at + width * count > end:
        raise ValueError("more samples than bytes")
    if not flags & _FIRST_FLAGS and flags & _SAMPLE_FLAGS and count:
        before = 4 * sum(bool(flags & field) for field in fields[:2])
        first = struct.unpack_from(">I", content, at + before)[0]
    if not flags & _SAMPLE_DURATION:
        return min(count, end) * duration, not first & _IS_NOT_KEY
    lasts = sum(struct.unpack_from(">I", content, at + n * width)[0] for n in range(count))
    return lasts, not first & _IS_NOT_KEY


def read_timescale(head: bytes) -> int:
    """Read how many units of time the track has per second."""
    try:
        at, _ = _find(head, 0, len(head), b"moov", b"trak", b"mdia", b"mdhd")
        scale: int = struct.unpack_from(">I", head, at + (20 if head[at] else 12))[0]
    except (struct.error, IndexError, ValueError):
        raise InvalidRecording from None
    if scale == 0:
        raise InvalidRecording
    return scale


def complete_head(head: bytes, timescale: int, parts: Sequence[Part]) -> bytes:
    """Extend the head by the duration and an index of the parts, so that players can seek."""
    if not parts:
        return head
    lasts = parts[-1].begins + parts[-1].lasts - parts[0].begins
    index = _index(timescale, parts) if len(parts) <= _MOST_REFERENCES else b""
    try:
        return _with_duration(head, lasts) + index
    except (struct.error, IndexError, ValueError):
        return head + index


def _with_duration(head: bytes, lasts: int) -> bytes:
    """Insert the duration of all fragments (`mehd`), in units of the movie's timescale."""
    moov, end = _find(head, 0, len(head), b"moov")
    mvex, _ = _find(head, moov, end, b"mvex")
    mvhd, _ = _find(head, moov, end, b"mvhd")
    movie_scale = struct.unpack_from(">I", head, mvhd + (20 if head[mvhd] else 12))[0]
    total = lasts * movie_scale // read_timescale(head)
    duration = struct.pack(">I4sIQ", 20, b"mehd", 1 << 24, total)
    grown = bytearray(head[:mvex] + duration + head[mvex:])
    for start in (moov - 8, mvex - 8):
        size = struct.unpack_from(">I", grown, start)[0]
        struct.pack_into(">I", grown, start, size + len(duration))
    return bytes(grown)


def _index(timescale: int, parts: Sequence[Part]) -> bytes:
    references = bytearray()
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        # A pause of the sandbox is a picture of that length.
        ends = part.begins + part.lasts if following is None else following.begins
        lasts = min(max(0, ends - part.begins), 2**32 - 1)
        references += struct.pack(">3I", part.size, lasts, (1 << 31 | 1 << 28) * part.is_key)
    body = struct.pack(">IIIQQHH", 1 << 24, 1, timescale, parts[0].begins, 0, 0, len(parts))
    return struct.pack(">I4s", 8 + len(body) + len(references), b"sidx") + body + references


def _find(content: bytes, start: int, end: int, *path: bytes) -> tuple[int, int]:
    """Find a box by its path; returns where its content begins and ends."""
    for kind, at, until in _boxes(content, start, end):
        if kind == path[0]:
            rest = path[1:]
            return _find(content, at + 8, until, *rest) if rest else (at + 8, until)
    raise ValueError("a box is missing")


def _boxes(
    content: bytes, start: int, end: int, *, is_growing: bool = False
) -> Iterator[tuple[bytes, int, int]]:
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", content, start)
        if not _BOX_HEAD <= size <= _LARGEST_BOX:
            raise ValueError("a box has no valid size")
        if start + size > end:
            if is_growing:
                return
            raise ValueError("a box is longer than its container")
        yield kind, start, start + size
        start += size
