from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["content", "files", "count"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is looked for, and how it is told."""

    pattern: str
    root: Path
    mode: Mode
    glob: str | None = None
    context: int = 0
    is_literal: bool = False
    ignores_case: bool = False

    @property
    def directory(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    def told(self, name: str) -> str:
        """Name a file as agents are told it, so that other tools find it."""
        return str(self.directory / name)
