import struct

_LONGEST_HEAD = 14
_CONTROL = 8
_CLOSE = 8
_FINAL = 0x80

# A piece with more frames is no longer parsed; a client that sends such small frames gets no closing reason.
_MOST_IN_PIECE = 500


class Frames:
    """Tracks the frames that one side of a WebSocket sends; only their headers are parsed."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._opcode = 0
        self._is_lost = False
        self._is_closed = False

    @property
    def may_end(self) -> bool:
        """Whether a close frame can follow here."""
        return not (self._is_lost or self._is_closed or self._left or self._head)

    def take(self, data: bytes) -> bool:
        """Parse more bytes; returns whether they contain parts of messages, not only control frames."""
        at = frames = 0
        is_message = self._is_lost
        while at < len(data) and not self._is_lost:
            if not self._left:
                at += self._begin(data[at : at + _LONGEST_HEAD - len(self._head)])
                frames += 1
                if self._head:
                    break
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step
            is_message |= self._opcode < _CONTROL
            self._is_lost = frames > _MOST_IN_PIECE
        return is_message

    def _begin(self, piece: bytes) -> int:
        """Parse the header of a frame if it is complete; returns how many bytes of the piece belong to it."""
        head = self._head + piece
        size = _size_of(head)
        if len(head) < size:
            self._head = head
            return len(piece)
        used, self._head = size - len(self._head), b""
        self._opcode = head[0] & 0x0F
        self._is_closed |= self._opcode == _CLOSE
        self._left = _length_of(head)
        return used


def close_frame(code: int, reason: str) -> bytes:
    """Build the close frame of a server."""
    payload = struct.pack("!H", code) + reason.encode()
    return bytes((_FINAL | _CLOSE, len(payload))) + payload


def _size_of(head: bytes) -> int:
    if len(head) < 2:  # noqa: PLR2004 - as all frames have
        return 2
    extended = {126: 2, 127: 8}.get(head[1] & 0x7F, 0)
    return 2 + extended + (4 if head[1] & 0x80 else 0)


def _length_of(head: bytes) -> int:
    short = head[1] & 0x7F
    if short == 126:  # noqa: PLR2004 - by RFC 6455
        return int.from_bytes(head[2:4], "big")
    return int.from_bytes(head[2:10], "big") if short == 127 else short  # noqa: PLR2004
