from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox_server.log.source import Item, Page

# About the send buffer of a connection.
BLOCK_BYTES = 64 * 1024
WINDOW_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Block:
    """Events that are sent together, serialized once for all followers."""

    items: Sequence[Item]
    text: bytes

    @property
    def position(self) -> int:
        return self.items[-1].id

    def after(self, position: int) -> "Block":
        """Return the part after `position`."""
        if self.items[0].id > position:
            return self
        return _block([item for item in self.items if item.id > position])


def blocks_of(items: Sequence[Item]) -> Iterator[Block]:
    """Group items into blocks of limited size."""
    gathered: list[Item] = []
    size = 0
    for item in items:
        if gathered and size + len(item.data) > BLOCK_BYTES:
            yield _block(gathered)
            gathered, size = [], 0
        gathered.append(item)
        size += len(item.data)
    if gathered:
        yield _block(gathered)


class Window:
    """The last part of a stream in memory: everything after `start` up to `position`."""

    def __init__(self, position: int) -> None:
        self.start = position
        self.position = position
        self._blocks: deque[Block] = deque()
        self._size = 0
        self._seen = position

    def add(self, page: Page) -> None:
        for block in blocks_of(page.items):
            self._blocks.append(block)
            self._size += len(block.text)
        self.position = page.position
        while self._size > WINDOW_BYTES and len(self._blocks) > 1:
            self._drop()

    def find_next(self, position: int) -> Block | None:
        """Find the next block for a follower at `position`, which is in the window."""
        found = None
        for block in reversed(self._blocks):
            if block.position <= position:
                break
            found = block
        return None if found is None else found.after(position)

    def age(self) -> None:
        """Drop blocks that were there at the last call. Slower followers read them from the log."""
        while self._blocks and self._blocks[0].position <= self._seen:
            self._drop()
        self._seen = self.position

    def _drop(self) -> None:
        dropped = self._blocks.popleft()
        self._size -= len(dropped.text)
        self.start = dropped.position


def _block(items: Sequence[Item]) -> Block:
    return Block(items, b"".join(b"id: %d\ndata: %b\n\n" % (item.id, item.data) for item in items))
