"""The files that the COPY steps of a Dockerfile take from."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from sandbox_server.domain.errors import InvalidRequest


@dataclass(frozen=True)
class ContextFile:
    content: bytes = field(repr=False)
    is_executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.is_executable else 0o644


@dataclass(frozen=True)
class BuildContext:
    """Files by their paths, which have neither a slash in front nor `..` in them."""

    files: Mapping[str, ContextFile]

    def below(self, source: str) -> Mapping[str, ContextFile]:
        """Give the files that a COPY of this source takes: a file, a directory or a pattern of either."""
        pattern = PurePosixPath(source).parts
        if PurePosixPath(source).is_absolute() or ".." in pattern:
            raise InvalidRequest(f"The Dockerfile copies {source!r}, which is not in its context.")
        found = {path: file for path, file in self.files.items() if _is_below(path, pattern)}
        if not found:
            raise InvalidRequest(
                f"The Dockerfile copies {source!r}, of which its context has nothing."
            )
        return found

    def digest(self, *marks: str, of: str = ".") -> str:
        """Tell these files, and what they are wanted for, from all others."""
        hashed = hashlib.sha256()
        for mark in (*marks, *_described(self.below(of))):
            hashed.update(f"{len(mark)}:{mark}".encode())
        return hashed.hexdigest()


def _described(files: Mapping[str, ContextFile]) -> Iterator[str]:
    for path, file in sorted(files.items()):
        yield f"{path} {file.mode:o} {hashlib.sha256(file.content).hexdigest()}"


def _is_below(path: str, pattern: tuple[str, ...]) -> bool:
    parts = PurePosixPath(path).parts[: len(pattern)]
    return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))
