from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ByteRange:
    """A range of bytes of a file."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, kw_only=True)
class OpenedFile:
    """An open file, or a range of it, streamed from a sandbox; to be closed by its holder."""

    length: int
    """Bytes to be streamed."""
    modified: str | None
    """The `Last-Modified` header of the sandbox."""
    parts: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]
