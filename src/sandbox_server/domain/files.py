"""Files and directories of a sandbox."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

_SECOND = 1_000_000_000
_LATEST = 253_402_300_799  # the last second of the year 9999


class EntryType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A device, a pipe, a socket, or a broken link."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or a directory; a link has its own size, times and owner, and else the properties of its target."""

    path: str
    name: str
    type: EntryType
    size: int
    mode: int
    owner: str
    group: str
    modified_ns: int
    symlink_target: str | None

    @property
    def modified_at(self) -> datetime:
        seconds = min(max(self.modified_ns // _SECOND, 0), _LATEST)
        return datetime.fromtimestamp(seconds, UTC)

    @property
    def etag(self) -> str:
        """Name the version of a file by its size and modification time."""
        return f'"{self.modified_ns:x}-{self.size:x}"'


class ChangeType(StrEnum):
    """Kinds of file changes. None is named `error`: browsers use that name themselves."""

    CREATED = "created"
    WRITTEN = "written"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHMOD = "chmod"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change below a watched directory, with a relative path."""

    type: ChangeType
    path: str
