from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from sandbox_engine.envd.files.file_writes import reported
from sandbox_engine.envd.protocol.responses import FileError
from sandbox_engine.rootfs.accounts import InvalidPath, resolve_path
from sandbox_engine.rootfs.descriptors import closing

if TYPE_CHECKING:
    from sandbox_engine.rootfs.accounts import Account
    from sandbox_engine.rootfs.root import Root

_PIECE_BYTES = 1 << 20


class Composition(BaseModel):
    """A request to concatenate files."""

    source_paths: list[str]
    destination: str
    username: str | None = None

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Parse a request's body."""
        try:
            wanted = cls.model_validate_json(body)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise FileError(400, f"invalid request body: {problem}") from error
        if not wanted.source_paths:
            raise FileError(400, "source_paths must not be empty")
        if not wanted.destination:
            raise FileError(400, "destination is required")
        return wanted

    def resolved(self, account: Account, *, workdir: str) -> Self:
        """Make all paths absolute."""

        def resolve(path: str, what: str) -> str:
            try:
                return resolve_path(path, account, workdir=workdir)
            except InvalidPath as error:
                raise FileError(400, f"error resolving {what}: {error}") from error

        destination = resolve(self.destination, "destination path")
        sources = [resolve(path, f'source path "{path}"') for path in self.source_paths]
        if destination in sources:
            source = self.source_paths[sources.index(destination)]
            text = f'source path "{source}" cannot be the same as destination'
            raise FileError(400, text)
        return self.model_copy(update={"source_paths": sources, "destination": destination})


def compose(root: Root, sources: Sequence[str], destination: str, account: Account) -> None:
    """Concatenate files into one atomically and remove them; blocks."""
    for source in sources:
        _require_file(root, source)
    temporary = f"{destination}.e2b-compose.{uuid4()}.tmp"
    with reported("error ensuring directories"):
        root.make_directories(posixpath.dirname(destination), account.owner)
    with reported("error creating destination file"):
        descriptor, _ = root.open_for_writing(temporary, account.owner)
    with closing(descriptor):
        try:
            with reported("error composing files"):
                for source in sources:
                    _append(root, source, descriptor)
                root.rename(temporary, destination)
        except FileError:
            with suppress(OSError):
                root.remove_file(temporary, descriptor)
            raise
    with reported("error removing source files"):
        for source in dict.fromkeys(sources):
            root.remove(source)


def _require_file(root: Root, source: str) -> None:
    with reported(f"error checking source file {source}"):
        try:
            mode = root.stat(source).st_mode
        except FileNotFoundError as error:
            raise FileError(404, f"source file not found: {source}") from error
    if not stat.S_ISREG(mode):
        raise FileError(400, f"source path is not a regular file: {source}")


def _append(root: Root, source: str, descriptor: int) -> None:
    with closing(root.open_file(source)) as opened:
        while piece := os.read(opened, _PIECE_BYTES):
            with memoryview(piece) as view:
                written = 0
                while written < len(view):
                    written += os.write(descriptor, view[written:])
