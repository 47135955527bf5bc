"""pkt-lines, the framing of git's protocols: four hex digits with the length of the line, which includes them, then the line.

0000                a flush, which ends a section
0001, 0002          delimiters of protocol 2; none of them is part of a push
0004                an empty line
"""

from collections.abc import AsyncIterator

FLUSH = b"0000"
MAX_LINE = 65_516

_HEAD = 4
_HEX = frozenset(b"0123456789abcdefABCDEF")


class MalformedPktLine(ValueError):
    """The bytes are not framed as pkt-lines."""


def pkt_line(*parts: bytes) -> bytes:
    """Frame one line."""
    line = b"".join(parts)
    if len(line) > MAX_LINE:
        raise ValueError(f"A pkt-line has at most {MAX_LINE} bytes.")
    return b"%04x" % (len(line) + _HEAD) + line


class PktLineReader:
    """Reads pkt-lines from the start of a body; what follows them is left as it is."""

    def __init__(self, body: AsyncIterator[bytes], *, limit: int) -> None:
        self._body = body
        self._limit = limit
        self._waiting = bytearray()
        self._is_over = False

    async def read(self) -> bytes | None:
        """Read a line without its line feed; None is a flush."""
        head = await self._take(_HEAD)
        if not _HEX.issuperset(head):
            raise MalformedPktLine(f"{head!r} is not the length of a pkt-line.")
        size = int(head, 16)
        if size == 0:
            return None
        if size < _HEAD:
            raise MalformedPktLine("Delimiters are not part of a push.")
        return (await self._take(size - _HEAD)).removesuffix(b"\n")

    async def at_end(self) -> bool:
        """Return whether nothing follows."""
        return not await self._fill(1)

    async def rest(self) -> AsyncIterator[bytes]:
        """Read what follows the lines, in parts."""
        waiting, self._waiting = bytes(self._waiting), bytearray()
        if waiting:
            yield waiting
        async for part in self._body:
            yield part

    async def _take(self, size: int) -> bytes:
        self._limit -= size
        if self._limit < 0:
            raise MalformedPktLine("There are too many lines before the pack.")
        if not await self._fill(size):
            raise MalformedPktLine("The body ends in the middle of a pkt-line.")
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return taken

    async def _fill(self, size: int) -> bool:
        while len(self._waiting) < size and not self._is_over:
            part = await anext(self._body, None)
            if part is None:
                self._is_over = True
            else:
                self._waiting += part
        return len(self._waiting) >= size
