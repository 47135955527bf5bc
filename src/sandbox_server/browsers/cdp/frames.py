"""WebSocket frames as they pass a proxy: messages up to a limit are collected, all others stream through."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from websockets.frames import Opcode
from websockets.speedups import apply_mask

_FINAL = 0x80
_MASKED = 0x80
_LONGEST_HEAD = 14
_SHORT, _MEDIUM = 126, 127
_NO_KEY = bytes(4)


@dataclass(frozen=True)
class Message:
    """A complete data message: its frames as received, and its payload without the mask."""

    raw: bytes
    payload: bytes


@dataclass(frozen=True)
class Control:
    """A complete ping, pong or close frame."""

    raw: bytes
    opcode: Opcode
    payload: bytes


@dataclass(frozen=True)
class Passage:
    """Bytes of a message that exceeds the limit, as received."""

    raw: bytes


Piece = Message | Control | Passage


class FrameError(Exception):
    """The peer violated RFC 6455."""


class FrameReader:
    """Splits one direction of a WebSocket into messages; holds at most `limit` bytes, beside what was received last."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._received = bytearray()
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

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Parse more bytes."""
        self._received += data
        while self._received:
            if self._left:
                yield self._pass()
                continue
            head = self._read_head()
            if head is None:
                return
            size, is_final, opcode, length, key = head
            if opcode >= Opcode.CLOSE:
                if len(self._received) < size + length:
                    return
                yield self._take_control(size, length, opcode, key)
            elif self._streams or self._held + size + length > self._limit:
                yield self._begin_stream(size, length, is_final=is_final)
            elif len(self._received) < size + length:
                return
            elif (message := self._take_frame(size, length, key, is_final=is_final)) is not None:
                yield message

    def _read_head(self) -> tuple[int, bool, Opcode, int, bytes] | None:
        received = self._received
        if len(received) < 2:  # noqa: PLR2004 - as every frame has
            return None
        try:
            opcode = Opcode(received[0] & 0x0F)
        except ValueError:
            raise FrameError("unknown opcode") from None
        short = received[1] & 0x7F
        extended = {_SHORT: 2, _MEDIUM: 8}.get(short, 0)
        masked = 4 if received[1] & _MASKED else 0
        size = 2 + extended + masked
        if len(received) < size:
            return None
        length = int.from_bytes(received[2 : 2 + extended], "big") if extended else short
        if opcode >= Opcode.CLOSE and length >= _SHORT:
            raise FrameError("a control frame is too long")
        key = bytes(received[2 + extended : size])
        return size, bool(received[0] & _FINAL), opcode, length, key

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return taken

    def _take_control(self, size: int, length: int, opcode: Opcode, key: bytes) -> Control:
        raw = self._take(size + length)
        return Control(raw, opcode, _unmasked(raw[size:], key))

    def _take_frame(self, size: int, length: int, key: bytes, *, is_final: bool) -> Message | None:
        raw = self._take(size + length)
        self._frames.append(raw)
        self._payloads.append(_unmasked(raw[size:], key))
        self._held += len(raw)
        return self._take_message() if is_final else None

    def _take_message(self) -> Message:
        message = Message(b"".join(self._frames), b"".join(self._payloads))
        self._forget()
        return message

    def _begin_stream(self, size: int, length: int, *, is_final: bool) -> Passage:
        held = b"".join(self._frames)
        self._forget()
        self._left = length
        self._is_last = is_final
        self._streams = bool(length) or not is_final
        return Passage(held + self._take(size))

    def _pass(self) -> Passage:
        passed = self._take(min(self._left, len(self._received)))
        self._left -= len(passed)
        if not self._left and self._is_last:
            self._streams = False
        return Passage(passed)

    def _forget(self) -> None:
        self._frames.clear()
        self._payloads.clear()
        self._held = 0


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
