from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

_MOST_ENTRIES = 50_000
_LONGEST_MESSAGE = 8_192
_CUT = " [cut]"


class Level(StrEnum):
    """Severity, least first."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Level).index(self)


@dataclass(frozen=True)
class BuildLogEntry:
    """One entry of a build's log; `step` is its number, `base` or `finalize`."""

    timestamp: datetime
    level: Level
    message: str
    step: str | None = None


_ENTRY = TypeAdapter(BuildLogEntry)


class BuildLog:
    """The log of a build, in a file that survives restarts.

    Each line begins with its newline, so that a line truncated by a crash spoils no other. The
    number of entries is limited; beyond it only errors are stored.
    """

    def __init__(self, path: Path, *, most_entries: int = _MOST_ENTRIES) -> None:
        self._path = path
        self._most_entries = most_entries
        self._entries = _read(path)
        self._is_full = len(self._entries) > most_entries

    def append(self, level: Level, message: str, *, step: str | None = None) -> None:
        """Add an entry; a message may have several lines."""
        if self._is_full and level is not Level.ERROR:
            return
        if len(self._entries) == self._most_entries:
            self._is_full = True
            if level is not Level.ERROR:
                level, message = Level.WARN, "The log is full; further entries are not stored."
        message = message.encode(errors="replace").decode()  # file names may contain any bytes
        if len(message) > _LONGEST_MESSAGE:
            message = message[: _LONGEST_MESSAGE - len(_CUT)] + _CUT
        entry = BuildLogEntry(datetime.now(UTC), level, message, step)
        self._entries.append(entry)
        with self._path.open("ab") as file:
            file.write(b"\n" + _ENTRY.dump_json(entry))

    def read(
        self, *, offset: int = 0, limit: int | None = None, level: Level = Level.DEBUG
    ) -> Sequence[BuildLogEntry]:
        """Return the entries of this level or above, except the first `offset`."""
        entries = [entry for entry in self._entries if entry.level.rank >= level.rank]
        return entries[offset:] if limit is None else entries[offset : offset + limit]

    def of_step(self, step: str) -> Sequence[BuildLogEntry]:
        """Return the entries of one step."""
        return [entry for entry in self._entries if entry.step == step]


def _read(path: Path) -> list[BuildLogEntry]:
    entries = []
    for line in path.read_bytes().split(b"\n")[1:] if path.exists() else ():
        try:
            entries.append(_ENTRY.validate_json(line))
        except ValidationError:  # truncated by a crash
            continue
    return entries
