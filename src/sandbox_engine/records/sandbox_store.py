from pathlib import Path

from sandbox_engine.records.journal import Journal
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.system.json_store import JsonStore


class RecordStore(JsonStore[SandboxRecord]):
    """Directories of sandboxes with their records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SandboxRecord)

    def journal(self, sandbox_id: str) -> Journal:
        """Return the journal of a sandbox."""
        return Journal(self.path(sandbox_id))
