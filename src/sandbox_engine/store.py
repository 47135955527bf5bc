import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from sandbox_engine.log import get_logger
from sandbox_engine.records import SandboxRecord

log = get_logger(__name__)


class RecordStore:
    """A directory per sandbox; its record is replaced atomically and is the truth after a crash."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, sandbox_id: str) -> Path:
        return self.directory / sandbox_id

    def add(self, record: SandboxRecord) -> None:
        """Give the sandbox its directory and write its first record."""
        self.path(record.id).mkdir(mode=0o700)
        self.save(record)

    def save(self, record: SandboxRecord) -> None:
        """Replace the sandbox's record; a reader sees the old one or the new one."""
        directory = self.path(record.id)
        fresh = directory / "record.json.new"
        fresh.write_text(record.model_dump_json())
        fresh.chmod(0o600)
        fresh.rename(directory / "record.json")

    def flush(self, sandbox_id: str) -> None:
        """Put the record on the disk itself, so that it survives a power cut."""
        for path in (self.path(sandbox_id) / "record.json", self.path(sandbox_id)):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def load_all(self) -> Iterator[SandboxRecord]:
        """Read every record that can be read."""
        for directory in self.directory.iterdir():
            record = directory / "record.json"
            try:
                yield SandboxRecord.model_validate_json(record.read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError as error:
                log.error("unreadable record left alone", path=str(record), error=str(error))

    def without_record(self) -> Iterator[Path]:
        """Find directories that a crash left before their sandbox had a record."""
        for directory in self.directory.iterdir():
            if not (directory / "record.json").exists():
                yield directory

    def remove(self, sandbox_id: str) -> None:
        """Forget the sandbox; the record goes first, so that no half-removed sandbox comes back."""
        directory = self.path(sandbox_id)
        (directory / "record.json").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
