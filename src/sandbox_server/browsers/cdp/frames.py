"""WebSocket frames as they pass a proxy: messages up to a limit are collected, all others stream through."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from websockets.frames import Opcode
from websockets.speedups import apply_mask

_FINAL = 0x80
_MASKED = 0x80
_SHORT, _MEDIUM = 126, 127
_NO_KEY = bytes(4)
_WHOLE = frozenset({_FINAL | Opcode.TEXT, _FINAL | Opcode.BINARY})


@dataclass(slots=True)
class Message:
    """A complete data message: its frames as received, and its payload without the mask."""

    raw: bytes
    payload: bytes


@dataclass(slots=True)
class Control:
    """A complete ping, pong or close frame."""

    raw: bytes
    opcode: Opcode
    payload: bytes


@dataclass(slots=True)
class Passage:
    """Bytes of a message that exceeds the limit, as received."""

    raw: bytes


Piece = Message | Control | Passage


class FrameError(Exception):
    """The peer violated RFC 6455."""


@dataclass(slots=True)
class _Head:
    size: int
    is_final: bool
    opcode: Opcode
    length: int
    key: bytes


class FrameReader:
    """Splits one direction of a WebSocket into messages; holds at most `limit` bytes, beside what was received last."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._received = bytearray()  # the beginning of a frame
        self._needed = 0  # bytes of it that the next step takes
        self._frames: list[bytes] = []
        self._payloads: list[bytes] = []
        self._held = 0
        self._streams = False  # the current message exceeds the limit
        self._left = 0  # bytes of the current frame that pass as they come
        self._is_last = True

    @property
    def is_between_frames(self) -> bool:
        """Whether everything passed on so far ends with a complete frame."""
        return not self._left

    @property
    def is_between_messages(self) -> bool:
        """Whether everything passed on so far ends with a complete message."""
        return not self._left and not self._streams

    def find_whole(self, data: bytes) -> Message | None:
        """Return the message if the bytes are exactly one; `feed` must take all others. Most commands are sent so."""
        if self._received or self._frames or self._left or self._streams:
            return None
        size = len(data)
        if not 2 <= size <= self._limit or data[0] not in _WHOLE:  # noqa: PLR2004 - as every frame has
            return None
        short, at = data[1] & 0x7F, 2
        if short == _SHORT:
            short, at = int.from_bytes(data[2:4], "big"), 4
        elif short == _MEDIUM:
            short, at = int.from_bytes(data[2:10], "big"), 10
        if not data[1] & _MASKED:
            return Message(data, data[at:]) if at + short == size else None
        if at + 4 + short != size:
            return None
        return Message(data, apply_mask(data[at + 4 :], data[at : at + 4]))

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Parse more bytes."""
        if self._received:
            self._received += data
            if len(self._received) < self._needed:
                return
            data = bytes(self._received)
            self._received.clear()
        at, end = 0, len(data)
        while at < end:
            if self._left:
                taken = data[at : at + self._left]
                at += len(taken)
                yield self._pass(taken)
                continue
            head = _read_head(data, at)
            if head is None:
                self._keep(data[at:], needed=end - at + 1)
                return
            size, length = head.size, head.length
            if head.opcode < Opcode.CLOSE and (
                self._streams or self._held + size + length > self._limit
            ):
                at += size
                yield self._begin_stream(data[at - size : at], head)
                continue
            if end - at < size + length:
                self._keep(data[at:], needed=size + length)
                return
            raw = data[at : at + size + length]
            at += size + length
            if head.opcode >= Opcode.CLOSE:
                yield Control(raw, head.opcode, _unmasked(raw[size:], head.key))
            elif (message := self._take_frame(raw, head)) is not None:
                yield message

    def _keep(self, rest: bytes, *, needed: int) -> None:
        self._received += rest
        self._needed = needed

    def _take_frame(self, raw: bytes, head: _Head) -> Message | None:
        self._frames.append(raw)
        self._payloads.append(_unmasked(raw[head.size :], head.key))
        self._held += len(raw)
        if not head.is_final:
            return None
        message = Message(b"".join(self._frames), b"".join(self._payloads))
        self._forget()
        return message

    def _begin_stream(self, head_bytes: bytes, head: _Head) -> Passage:
        held = b"".join(self._frames)
        self._forget()
        self._left = head.length
        self._is_last = head.is_final
        self._streams = bool(head.length) or not head.is_final
        return Passage(held + head_bytes)

    def _pass(self, taken: bytes) -> Passage:
        self._left -= len(taken)
        if not self._left and self._is_last:
            self._streams = False
        return Passage(taken)

    def _forget(self) -> None:
        self._frames.clear()
        self._payloads.clear()
        self._held = 0


def _read_head(data: bytes, at: int) -> _Head | None:
    """Read the head of the frame that begins there; None if it is incomplete."""
    if len(data) - at < 2:  # noqa: PLR2004 - as every frame has
        return None
    first, second = data[at], data[at + 1]
    try:
        opcode = Opcode(first & 0x0F)
    except ValueError:
        raise FrameError("unknown opcode") from None
    short = second & 0x7F
    extended = 2 if short == _SHORT else 8 if short == _MEDIUM else 0
    size = 2 + extended + (4 if second & _MASKED else 0)
    if len(data) - at < size:
        return None
    length = int.from_bytes(data[at + 2 : at + 2 + extended], "big") if extended else short
    if opcode >= Opcode.CLOSE and length >= _SHORT:
        raise FrameError("a control frame is too long")
    key = data[at + 2 + extended : at + size]
    return _Head(size, bool(first & _FINAL), opcode, length, key)


def build_frame(payload: bytes, *, opcode: Opcode = Opcode.TEXT, masked: bool = False) -> bytes:
    """Build a frame; the mask of clients is zero, which leaves the payload readable."""
    mask = _MASKED if masked else 0
    length = len(payload)
    if length < _SHORT:
        head = bytes((_FINAL | opcode, mask | length))
    elif length < 2**16:
        head = bytes((_FINAL | opcode, mask | _SHORT)) + struct.pack("!H", length)
    else:
        head = bytes((_FINAL | opcode, mask | _MEDIUM)) + struct.pack("!Q", length)
    return head + (_NO_KEY if masked else b"") + payload


def _unmasked(payload: bytes, key: bytes) -> bytes:
    return apply_mask(payload, key) if key else payload
