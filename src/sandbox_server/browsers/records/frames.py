"""Pictures of a page with their instants, as they are stored: a line of JSON, then each picture behind its head."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_HEAD = struct.Struct("!QI")


@dataclass(frozen=True)
class Frame:
    """A JPEG that a page showed from an instant on."""

    at_ms: int
    picture: bytes


def pack_frames(url: str, frames: Sequence[Frame]) -> bytes:
    parts = [json.dumps({"url": url}).encode(), b"\n"]
    for frame in frames:
        parts += (_HEAD.pack(frame.at_ms, len(frame.picture)), frame.picture)
    return b"".join(parts)


def unpack_url(content: bytes) -> str:
    return str(json.loads(content.partition(b"\n")[0])["url"])


def unpack_frames(content: bytes) -> list[Frame]:
    rest = memoryview(content)[content.index(b"\n") + 1 :]
    frames = []
    while rest:
        at_ms, size = _HEAD.unpack(rest[: _HEAD.size])
        frames.append(Frame(at_ms, bytes(rest[_HEAD.size : _HEAD.size + size])))
        rest = rest[_HEAD.size + size :]
    return frames
