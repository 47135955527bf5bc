import os
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from sandbox_engine.sandboxes.sandbox import Usage

_RECENT = 720  # an hour at one per five seconds
_KEPT_SECONDS = 60.0
_LARGEST_COUNT = 7 * 24 * 60

_POINT = struct.Struct("<dHf5Q")


class History:
    """Usage of a sandbox: all measurements of the last hour, one per minute for seven days.

    Those per minute are stored in a file beside the sandbox's record and survive restarts.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "metrics"
        self._recent: deque[Usage] = deque(maxlen=_RECENT)
        self._kept_at = float("-inf")

    def add(self, usage: Usage) -> None:
        """Add a measurement."""
        self._recent.append(usage)
        if usage.at - self._kept_at >= _KEPT_SECONDS:
            self._kept_at = usage.at
            with suppress(OSError):  # on a full disk only this measurement is lost
                self._keep(usage)

    def all(self) -> list[Usage]:
        """Return all measurements, oldest first."""
        since = self._recent[0].at if self._recent else float("inf")
        return [*(sample for sample in self._read() if sample.at < since), *self._recent]

    def _keep(self, usage: Usage) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            count = os.fstat(descriptor).st_size // _POINT.size
            os.pwrite(descriptor, _POINT.pack(*astuple(usage)), count * _POINT.size)
        finally:
            os.close(descriptor)
        if count > 2 * _LARGEST_COUNT:
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(self._path.read_bytes()[-_LARGEST_COUNT * _POINT.size :])
            fresh.rename(self._path)

    def _read(self) -> Iterator[Usage]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        whole = len(content) // _POINT.size * _POINT.size
        start = max(0, whole - _LARGEST_COUNT * _POINT.size)
        for values in _POINT.iter_unpack(content[start:whole]):
            yield Usage(*values)
