import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_GZIP_MAGIC = b"\x1f\x8b"
# Limit of an entry's headers: names and attributes are read into memory.
_HEADER_BYTES = 1 << 20
_UNREADABLE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error),
    *(EOFError, ValueError, OverflowError, RecursionError),
)

Entry = tuple[tarfile.TarInfo, BinaryIO | None]


class BadArchive(Exception):
    """The uploaded archive is malformed or exceeds a limit."""


@contextmanager
def open_archive(
    path: Path, *, most_bytes: int, is_given_up: Callable[[], bool]
) -> Iterator[Iterator[Entry]]:
    """Read an untrusted uploaded archive; yields entries with their contents in order.

    Contents are valid until the next entry is requested.
    """
    with path.open("rb") as raw:
        is_packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        raw.seek(0)
        with gzip.open(raw) if is_packed else raw as unpacked:
            bounded = _Bounded(unpacked, most_bytes=most_bytes, is_given_up=is_given_up)
            try:
                yield _entries(bounded)
            except _UNREADABLE as error:
                raise BadArchive(f"the uploaded archive cannot be read: {error}") from error


def _entries(bounded: "_Bounded") -> Iterator[Entry]:
    with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
        while (member := archive.next()) is not None:
            with bounded.contents():
                yield member, archive.extractfile(member) if member.isreg() else None
            archive.members.clear()  # a million entries would all be kept


class _Bounded:
    """A forward-only stream with a limit."""

    def __init__(
        self, source: BinaryIO | gzip.GzipFile, *, most_bytes: int, is_given_up: Callable[[], bool]
    ) -> None:
        self._source = source
        self._left = most_bytes
        self._is_given_up = is_given_up
        # tarfile reads an entry's headers into memory, however long they claim to be.
        self._header_left: int | None = _HEADER_BYTES

    @contextmanager
    def contents(self) -> Iterator[None]:
        """Allow reading an entry's contents; the next headers follow."""
        self._header_left = None
        yield
        self._header_left = _HEADER_BYTES

    def read(self, size: int) -> bytes:
        if self._is_given_up():
            raise BadArchive("the build was cancelled")
        self._left -= size
        if self._left < 0:
            raise BadArchive("the uploaded archive holds more than the sandbox's disk")
        if self._header_left is not None:
            self._header_left -= size
            if self._header_left < 0:
                raise BadArchive("an entry of the uploaded archive has a name that is too long")
        return self._source.read(size)

    def seek(self, position: int) -> int:
        """Skip to a later position."""
        ahead = position - self.tell()
        if ahead < 0:
            raise BadArchive("the entries of the uploaded archive are out of order")
        with self.contents():
            while ahead:
                if not (skipped := len(self.read(min(ahead, _HEADER_BYTES)))):
                    raise EOFError("it ends in the middle of a file")
                ahead -= skipped
        return position

    def tell(self) -> int:
        return self._source.tell()
