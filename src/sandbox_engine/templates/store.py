import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from sandbox_engine.durable import replace_file, sync_directory
from sandbox_engine.log import get_logger
from sandbox_engine.templates.records import TemplateRecord

log = get_logger(__name__)

_RECORD = "template.json"


class TemplateStore:
    """A directory per template, with its record and the logs of its builds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = asyncio.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def save(self, template: TemplateRecord) -> None:
        """Write the template down; a crash leaves its old record or the new one."""
        kept = {build.id for build in template.builds}
        # A writer that was cancelled half way would meet the next one in the same file.
        await asyncio.shield(
            self._write(partial(self._save, template.id, template.model_dump_json(), kept))
        )

    def load_all(self) -> Iterator[TemplateRecord]:
        """Read every template that can be read, and remove what a crash left half removed."""
        for directory in list(self._directory.iterdir()):
            try:
                yield TemplateRecord.model_validate_json((directory / _RECORD).read_bytes())
            except FileNotFoundError:
                shutil.rmtree(directory)
            except ValidationError as error:
                log.error("unreadable template left alone", path=str(directory), error=str(error))

    async def remove(self, template_id: str) -> None:
        """Forget the template with the logs of its builds."""
        await asyncio.shield(self._write(partial(self._remove, template_id)))

    async def _write(self, work: Callable[[], None]) -> None:
        async with self._writing:
            await asyncio.to_thread(work)

    def _save(self, template_id: str, record: str, builds: set[str]) -> None:
        directory = self._directory / template_id
        directory.mkdir(exist_ok=True, mode=0o700)
        replace_file(directory / _RECORD, record)
        for path in directory.glob("*.log"):
            if path.stem not in builds:
                path.unlink(missing_ok=True)

    def _remove(self, template_id: str) -> None:
        directory = self._directory / template_id
        # The record goes first, so that no half-removed template comes back.
        (directory / _RECORD).unlink(missing_ok=True)
        sync_directory(directory)
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def log_path(self, template_id: str, build_id: str) -> Path:
        return self._directory / template_id / f"{build_id}.log"
