from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ByteRange:
    """So many bytes of a file, from an offset on."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, kw_only=True)
class OpenedFile:
    """A file, or a range of it, as it is sent by a sandbox; whoever has it closes it."""

    length: int
    """Of what is sent."""
    modified: str | None
    """When it was, as its sandbox words it in HTTP."""
    parts: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]
