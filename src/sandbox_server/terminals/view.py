from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, cast

from sandbox_server.log.follower import LogFollower
from sandbox_server.log.records import Record, RecordType
from sandbox_server.terminals.source import TerminalItem

Frame = bytes | dict[str, Any]


class TerminalView:
    """Frames for one viewer of a terminal: bytes from an offset on, and messages between them."""

    def __init__(self, follower: LogFollower, *, offset: int) -> None:
        self._follower = follower
        self.offset = self._offset = offset
        self.has_ended = False

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Yield bytes and messages in order, until the terminal or the server ends."""
        async with aclosing(self._follower.blocks()) as blocks:
            async for block in blocks:
                records = (cast("TerminalItem", item).record for item in block.items)
                for frame in coalesce(self._frames_of(records)):
                    yield frame

    def _frames_of(self, records: Iterator[Record]) -> Iterator[Frame]:
        for record in records:
            match record.type:
                case RecordType.STDOUT:
                    yield from self._frame_output(record)
                case RecordType.GAP:
                    yield from self._frame_gap(record)
                case RecordType.RESIZED:
                    yield {"type": "resized", **record.data}
                case RecordType.EXIT:
                    self.has_ended = True
                    yield {"type": "exit", **record.data}

    def _frame_output(self, record: Record) -> Iterator[Frame]:
        end = record.offset + len(record.content)
        if end <= self._offset:
            return
        if record.offset > self._offset:
            yield self._gap(record.offset)
        yield record.content[self._offset - record.offset :]
        self._offset = end

    def _frame_gap(self, record: Record) -> Iterator[Frame]:
        size = record.data.get("size")
        if size is None:
            yield {"type": "gap", "offset": self._offset, "size": None}
        elif (end := record.offset + size) > self._offset:
            yield self._gap(end)

    def _gap(self, end: int) -> Frame:
        gap = {"type": "gap", "offset": self._offset, "size": end - self._offset}
        self._offset = end
        return gap


def coalesce(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Join adjacent bytes."""
    gathered = bytearray()
    for frame in frames:
        if isinstance(frame, bytes):
            gathered += frame
            continue
        if gathered:
            yield bytes(gathered)
            gathered.clear()
        yield frame
    if gathered:
        yield bytes(gathered)
