import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from sandbox_engine.system.json_store import JsonStore
from sandbox_engine.templates.records import TemplateRecord


class TemplateStore(JsonStore[TemplateRecord]):
    """One directory per template, with its record and build logs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, TemplateRecord)
        for half_removed in list(self.without_record()):
            shutil.rmtree(half_removed)

    async def keep(self, template: TemplateRecord) -> None:
        """Save the template and flush it; removes logs of removed builds."""
        self.path(template.id).mkdir(exist_ok=True, mode=0o700)
        self.save(template)
        known = {self.log_path(template.id, build.id) for build in template.builds}
        for log in set(self.path(template.id).glob("*.log")) - known:
            log.unlink()
        with suppress(FileNotFoundError):  # removed meanwhile
            await asyncio.to_thread(self.flush, template.id)

    def log_path(self, template_id: str, build_id: str) -> Path:
        return self.path(template_id) / f"{build_id}.log"
