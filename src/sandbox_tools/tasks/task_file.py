import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASK_FILE = "task.json"

_LARGEST = 8 * 1024 * 1024
_MOST_DIRECTORIES = 1000


@dataclass(frozen=True)
class CheckedOutTask:
    """The task of a checkout, as the server described it before the current run."""

    directory: Path
    document: Mapping[str, Any]

    @property
    def git_directory(self) -> Path:
        return self.directory / ".git"

    def text(self, name: str) -> str:
        found = self.document.get(name)
        return found if isinstance(found, str) else ""

    def entries(self, name: str) -> list[Mapping[str, Any]]:
        found = self.document.get(name)
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


class TaskFiles:
    """Finds the checkout of a task in the given directories, or directly below them."""

    def __init__(self, *directories: Path) -> None:
        self._directories = directories

    def find(self) -> CheckedOutTask | None:
        """Find the newest task; a copy of its checkout is not taken for it."""
        found = [
            (_changed(file), file)
            for directory in self._candidates()
            if (file := directory / ".git" / TASK_FILE).is_file()
        ]
        tasks = (_read(file) for _, file in sorted(found, reverse=True))
        return next((task for task in tasks if task is not None), None)

    def _candidates(self) -> Iterator[Path]:
        for directory in dict.fromkeys(self._directories):
            yield directory
            yield from _below(directory)


def _below(directory: Path) -> Iterable[Path]:
    try:
        with os.scandir(directory) as entries:
            named = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()
    return named[:_MOST_DIRECTORIES]


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0


def _read(file: Path) -> CheckedOutTask | None:
    try:
        with file.open("rb") as opened:
            document = json.loads(opened.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    directory = file.parent.parent
    if not isinstance(document, dict) or not _is_at(document.get("directory"), directory):
        return None
    return CheckedOutTask(directory, document)


def _is_at(named: object, directory: Path) -> bool:
    try:
        return isinstance(named, str) and Path(named).samefile(directory)
    except (OSError, ValueError):
        return False
