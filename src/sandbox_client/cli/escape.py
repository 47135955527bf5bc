_ESCAPE = ord("~")
_LEAVE = ord(".")
_LINE_ENDS = b"\r\n"


class Escape:
    """Finds `~.` at the start of a line in what is typed, as of ssh; `~~` there is one `~`."""

    def __init__(self) -> None:
        self.is_complete = False
        self._is_at_start = True
        self._is_held = False

    def feed(self, typed: bytes) -> bytes:
        """Give what of it is to be passed on; nothing after the escape."""
        passed_on = bytearray()
        for byte in typed:
            if self._is_held:
                self._is_held = False
                if byte == _LEAVE:
                    self.is_complete = True
                    break
                if byte != _ESCAPE:
                    passed_on.append(_ESCAPE)
            elif byte == _ESCAPE and self._is_at_start:
                self._is_held = True
                continue
            passed_on.append(byte)
            self._is_at_start = byte in _LINE_ENDS
        return bytes(passed_on)
