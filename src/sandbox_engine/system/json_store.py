import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from pydantic import ValidationError

from sandbox_engine.system.log import get_logger
from sandbox_engine.system.private_files import flush, write_private

log = get_logger(__name__)


class Record(Protocol):
    """A persistent record."""

    @property
    def id(self) -> str: ...

    def model_dump_json(self) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self: ...


R = TypeVar("R", bound=Record)


class JsonStore(Generic[R]):
    """One directory with a JSON record per item; records are replaced atomically."""

    def __init__(self, directory: Path, kind: type[R]) -> None:
        self.directory = directory
        self._kind = kind
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, record_id: str) -> Path:
        return self.directory / record_id

    def add(self, record: R) -> None:
        """Create the record with its directory."""
        self.path(record.id).mkdir(mode=0o700)
        self.save(record)

    def save(self, record: R) -> None:
        """Replace the record atomically."""
        write_private(self._file(record.id), record.model_dump_json().encode())

    def flush(self, record_id: str) -> None:
        """Flush the record to disk, so that it survives a power failure."""
        flush(self._file(record_id))

    def load_all(self) -> Iterator[R]:
        """Load all readable records."""
        for directory in self.directory.iterdir():
            record = self._file(directory.name)
            try:
                yield self._kind.model_validate_json(record.read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError as error:
                problems = error.errors(include_input=False, include_context=False)
                log.error("unreadable record ignored", path=str(record), error=str(problems))

    def without_record(self) -> Iterator[Path]:
        """Find directories left by a crash before their record was written."""
        for directory in self.directory.iterdir():
            if not self._file(directory.name).exists():
                yield directory

    def remove(self, record_id: str) -> None:
        """Remove the record, then its directory: a crash leaves no half-removed item."""
        self._file(record_id).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path(record_id))

    def _file(self, record_id: str) -> Path:
        return self.path(record_id) / "record.json"
