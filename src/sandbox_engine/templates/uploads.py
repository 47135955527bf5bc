import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sandbox_engine.machine.capacity import Capacity
from sandbox_engine.system.errors import InvalidRequest, UploadNotFound, UploadTooLarge

_DIGEST = re.compile(r"[0-9a-f]{32,128}")
_UNFINISHED = ".part"
_CHUNK = 1 << 20


class Uploads:
    """Uploaded files of COPY steps by the client's hash.

    They are kept while builds use them: clients do not upload files again that are present.
    """

    def __init__(
        self, directory: Path, *, capacity: Capacity, largest: int, keep: timedelta
    ) -> None:
        self._capacity = capacity
        self._directory = directory
        self._largest = largest
        self._keep = keep
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left_by_a_crash in directory.glob(f"*{_UNFINISHED}"):
            left_by_a_crash.unlink()

    def is_present(self, digest: str) -> bool:
        with suppress(UploadNotFound):
            self.find(digest)
            return True
        return False

    def find(self, digest: str) -> Path:
        """Find an upload, and record its use."""
        path = self._path(digest)
        try:
            os.utime(path)
        except FileNotFoundError:
            raise UploadNotFound(digest) from None
        return path

    async def receive(
        self, digest: str, body: AsyncIterator[bytes], *, length: int | None = None
    ) -> None:
        """Store an upload atomically."""
        path = self._path(digest)
        self._check_size(length or 0)
        with (
            self._capacity.reserve(disk=length or 0),
            tempfile.NamedTemporaryFile(
                dir=self._directory, suffix=_UNFINISHED, buffering=_CHUNK, delete=False
            ) as file,
            _gone_at_the_end(Path(file.name)) as unfinished,
        ):
            async for chunk in body:
                self._check_size(file.tell() + len(chunk))
                with self._capacity.reserve(disk=0 if length else len(chunk)):
                    await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(file.flush)
            unfinished.rename(path)

    def remove_old(self) -> None:
        """Remove uploads that were not used for long."""
        oldest = time.time() - self._keep.total_seconds()
        for path in self._directory.iterdir():
            if path.suffix != _UNFINISHED and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise InvalidRequest("The hash of files must be 32 to 128 lowercase hex digits")
        return self._directory / digest

    def _check_size(self, size: int) -> None:
        if size > self._largest:
            raise UploadTooLarge(self._largest)


@contextmanager
def _gone_at_the_end(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
