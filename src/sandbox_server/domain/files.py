"""What there is in a sandbox's file system."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

_SECOND = 1_000_000_000
_LATEST = 253_402_300_799  # the last second of the year 9999


class EntryType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A device, a pipe, a socket; a link to nothing."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or a directory; of a link, all but its size, times and owner are of what it leads to."""

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
        """Name the version of a file: what is written to it has another size or another instant."""
        return f'"{self.modified_ns:x}-{self.size:x}"'


class ChangeType(StrEnum):
    """What happened to a file. None is named `error`: browsers use that name for themselves."""

    CREATED = "created"
    WRITTEN = "written"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHMOD = "chmod"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that happened below a directory; its path is relative to that."""

    type: ChangeType
    path: str
