from pathlib import Path

from sandbox_engine.records import SandboxRecord
from sandbox_engine.shelf import Shelf


class RecordStore(Shelf[SandboxRecord]):
    """The sandboxes' directories, each with its record."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SandboxRecord)
