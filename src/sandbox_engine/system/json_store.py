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
    """What is known of something that outlives the engine's process."""

    @property
    def id(self) -> str: ...

    def model_dump_json(self) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self: ...


R = TypeVar("R", bound=Record)


class JsonStore(Generic[R]):
    """A directory per record; each is replaced atomically and is the truth after a crash."""

    def __init__(self, directory: Path, kind: type[R]) -> None:
        self.directory = directory
        self._kind = kind
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, record_id: str) -> Path:
        return self.directory / record_id

    def add(self, record: R) -> None:
        """Give the record its directory and write it for the first time."""
        self.path(record.id).mkdir(mode=0o700)
        self.save(record)

    def save(self, record: R) -> None:
        """Replace the record; a reader sees the old one or the new one."""
        write_private(self._file(record.id), record.model_dump_json().encode())

    def flush(self, record_id: str) -> None:
        """Put the record on the disk itself, so that it survives a power cut."""
        flush(self._file(record_id))

    def load_all(self) -> Iterator[R]:
        """Read every record that can be read."""
        for directory in self.directory.iterdir():
            record = self._file(directory.name)
            try:
                yield self._kind.model_validate_json(record.read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError as error:
                problems = error.errors(include_input=False, include_context=False)
                log.error("unreadable record left alone", path=str(record), error=str(problems))

    def without_record(self) -> Iterator[Path]:
        """Find directories that a crash left before they had a record."""
        for directory in self.directory.iterdir():
            if not self._file(directory.name).exists():
                yield directory

    def remove(self, record_id: str) -> None:
        """Forget the record with all beside it; it goes first, so that no half of it comes back."""
        self._file(record_id).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path(record_id))

    def _file(self, record_id: str) -> Path:
        return self.path(record_id) / "record.json"
