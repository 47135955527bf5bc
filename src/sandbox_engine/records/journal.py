import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

_LARGEST = 512 << 10
_LONGEST_TEXT = 2000


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"

    def includes(self, other: "Level") -> bool:
        """Return whether a filter for this level includes the other."""
        order = list(Level)
        return order.index(other) >= order.index(self)


class Entry(BaseModel):
    """A journal entry of a sandbox."""

    at: datetime
    level: Level = Level.INFO
    message: str
    fields: dict[str, str] = Field(default_factory=dict)


class Journal:
    """The log of a sandbox, in its directory; the older half is dropped when it is full."""

    def __init__(self, directory: Path) -> None:
        self._newer = directory / "journal"
        self._older = directory / "journal.old"

    def note(
        self, message: str, fields: Mapping[str, str] | None = None, *, level: Level = Level.INFO
    ) -> None:
        """Add an entry; a full disk is ignored."""
        entry = Entry(
            at=datetime.now(UTC),
            level=level,
            message=_bounded(message),
            fields={name: _bounded(text) for name, text in (fields or {}).items()},
        )
        with suppress(OSError):
            self._append(entry.model_dump_json().encode() + b"\n")

    def entries(self) -> Iterator[Entry]:
        """Read all entries, oldest first."""
        for path in (self._older, self._newer):
            with suppress(FileNotFoundError), path.open("rb") as file:
                for line in file:
                    with suppress(ValidationError):  # truncated by a full disk
                        yield Entry.model_validate_json(line)

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._newer, flags, 0o600)
        try:
            os.write(descriptor, line)
            if os.fstat(descriptor).st_size > _LARGEST:
                self._newer.rename(self._older)
        finally:
            os.close(descriptor)


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
