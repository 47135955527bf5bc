"""What a viewer's client may send to Xvnc: requests for pixels always, input only while a person has control."""

import struct
from collections.abc import Callable

from sandbox_tools.desktop.rfb import NO_SECURITY, VERSION

_MOST_CLIPBOARD = 1 << 20
_VERSIONS = (VERSION, b"RFB 003.007\n")

_ENCODINGS, _KEY, _POINTER, _CLIPBOARD, _FENCE, _RESIZE, _QEMU = 2, 4, 5, 6, 248, 251, 255
# Lengths of messages; those of None depend on their content.
_LENGTHS = {
    0: 20,
    _ENCODINGS: None,
    3: 10,
    _KEY: 8,
    _POINTER: 6,
    _CLIPBOARD: None,
    150: 10,
    _FENCE: None,
    _RESIZE: None,
    _QEMU: 12,
}
_INPUT = {_KEY, _POINTER, _CLIPBOARD, _QEMU}
# Where the counts of variable messages are: offset, format, bytes before the elements, bytes of each.
_COUNTS = {
    _ENCODINGS: (2, ">H", 4, 4),
    _CLIPBOARD: (4, ">i", 8, 1),
    _FENCE: (8, ">B", 9, 1),
    _RESIZE: (6, ">B", 8, 16),
}


class ProtocolViolation(Exception):
    """The client does not speak RFB as we know it."""


class ViewerFilter:
    """Reads a client's bytes and returns those that Xvnc may have."""

    def __init__(self, may_send_input: Callable[[], bool]) -> None:
        self._may_send_input = may_send_input
        self._buffer = bytearray()
        self._handshake = [self._version, self._security, self._shared]
        self._keys: dict[int, None] = {}
        self._buttons = 0
        self._pointer = b"\0\0\0\0"

    def pass_on(self, received: bytes) -> bytes:
        """Return what of the bytes so far is to be sent on."""
        self._buffer += received
        passed = bytearray()
        while (message := self._next()) is not None:
            passed += message
        return bytes(passed)

    def release(self) -> bytes:
        """Return messages that release every key and button that the client still holds."""
        keys = b"".join(struct.pack(">BBxxI", _KEY, 0, keysym) for keysym in self._keys)
        pointer = struct.pack(">BB4s", _POINTER, 0, self._pointer) if self._buttons else b""
        self._keys.clear()
        self._buttons = 0
        return keys + pointer

    def _next(self) -> bytes | None:
        if self._handshake:
            part = self._handshake[0]()
            if part is not None:
                self._handshake.pop(0)
            return part
        length = self._length()
        if length is None or len(self._buffer) < length:
            return None
        message = self._take(length)
        kind = message[0]
        if kind == _QEMU and message[1]:
            raise ProtocolViolation("The viewer sent a message of QEMU that is not a key.")
        if kind in _INPUT:
            return self._input(kind, message) if self._may_send_input() else b""
        return b"" if kind == _RESIZE else message

    def _length(self) -> int | None:
        if not self._buffer:
            return None
        kind = self._buffer[0]
        if kind not in _LENGTHS:
            raise ProtocolViolation(f"The viewer sent a message of the unknown type {kind}.")
        length = _LENGTHS[kind]
        if length is not None:
            return length
        offset, form, head, each = _COUNTS[kind]
        if len(self._buffer) < head:
            return None
        count = abs(struct.unpack_from(form, self._buffer, offset)[0])
        if kind == _CLIPBOARD and count > _MOST_CLIPBOARD:
            raise ProtocolViolation(
                f"The viewer sent a clipboard of {count} bytes; at most {_MOST_CLIPBOARD} are accepted."
            )
        return int(head + count * each)

    def _input(self, kind: int, message: bytes) -> bytes:
        if kind == _KEY:
            self._note_key(is_down=bool(message[1]), keysym=int.from_bytes(message[4:8], "big"))
        elif kind == _QEMU:
            self._note_key(is_down=bool(message[3]), keysym=int.from_bytes(message[4:8], "big"))
        elif kind == _POINTER:
            self._buttons, self._pointer = message[1], message[2:6]
        return message

    def _note_key(self, *, is_down: bool, keysym: int) -> None:
        if is_down:
            self._keys[keysym] = None
        else:
            self._keys.pop(keysym, None)

    def _version(self) -> bytes | None:
        if len(self._buffer) < len(VERSION):
            return None
        version = self._take(len(VERSION))
        if version not in _VERSIONS:
            raise ProtocolViolation("The viewer must speak RFB 3.7 or 3.8.")
        return version

    def _security(self) -> bytes | None:
        if not self._buffer:
            return None
        if self._take(1)[0] != NO_SECURITY:
            raise ProtocolViolation("The viewer selected a security type that was not offered.")
        return bytes([NO_SECURITY])

    def _shared(self) -> bytes | None:
        # Xvnc would disconnect all others for a client that does not share.
        return b"\1" if self._buffer and self._take(1) else None

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken
