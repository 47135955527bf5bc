"""The files for the COPY steps of a Dockerfile."""

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
    """Files by relative path, without `..`."""

    files: Mapping[str, ContextFile]

    def below(self, source: str) -> Mapping[str, ContextFile]:
        """List the files of a COPY source: a file, a directory or a pattern."""
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
        """Compute a digest of the files and marks."""
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
