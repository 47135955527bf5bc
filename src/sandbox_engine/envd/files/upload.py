from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from sandbox_engine.envd.files.body import NoRoom, Spool, Spools
from sandbox_engine.envd.files.file_writes import (
    NO_ROOM,
    no_room_for,
    reported,
    room_for,
    store,
)
from sandbox_engine.envd.files.multipart import PartEnd, PartStart, read_form
from sandbox_engine.envd.protocol.entries import printable
from sandbox_engine.envd.protocol.responses import FileError
from sandbox_engine.rootfs.accounts import Account, InvalidPath, resolve_path

if TYPE_CHECKING:
    from sandbox_engine.sandboxes.sandbox import Sandbox
    from sandbox_engine.system.file_threads import FileThreads

Stored = dict[str, Any]


@dataclass(frozen=True)
class Upload:
    """Parameters of an upload that apply to all its files."""

    account: Account
    workdir: str
    path: str | None
    metadata: Mapping[str, str]
    length: int | None


class Uploads:
    """Receives uploads of one sandbox; each file is complete before its target is changed."""

    def __init__(self, sandbox: Sandbox, workers: FileThreads) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._spools = Spools(sandbox.spool_dir, workers)
        # Serializes writes to the same file.
        self._being_stored: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take_body(self, body: AsyncIterator[bytes], upload: Upload) -> list[Stored]:
        """Store the body of a request as one file."""
        if upload.path is None:
            raise FileError(400, "path query parameter is required for raw body upload")
        path = resolve(upload.path, upload.account, workdir=upload.workdir)
        spool = await self._open_spool(path, length=upload.length)
        try:
            async for data in body:
                await _write(spool, data)
            return [await self._store(path, spool, upload)]
        finally:
            spool.close()

    async def take_form(
        self, body: AsyncIterator[bytes], content_type: str, upload: Upload
    ) -> list[Stored]:
        """Store the parts of a form named `file`, in order."""
        stored: dict[str, Stored] = {}
        path, spool = "", None
        try:
            async for happening in read_form(body, content_type):
                match happening:
                    case PartStart(field="file"):
                        path = _target(happening, upload, stored)
                        spool = await self._open_spool(path)
                    case bytes() if spool is not None:
                        await _write(spool, happening)
                    case PartEnd() if spool is not None:
                        stored[path] = await self._store(path, spool, upload)
                        spool.close()
                        spool = None
        finally:
            if spool is not None:
                spool.close()
        return list(stored.values())

    async def _open_spool(self, path: str, *, length: int | None = None) -> Spool:
        room = await self._workers.run(partial(room_for, self._sandbox.root, path))
        # The machine holds it twice until it is stored, and must have that space itself.
        room = min(room, self._sandbox.disk_room() // 2)
        if length is not None and length > room:
            raise FileError(507, no_room_for(length))
        return self._spools.open(room=room)

    async def _store(self, path: str, spool: Spool, upload: Upload) -> Stored:
        lock = self._being_stored.setdefault(path, asyncio.Lock())
        async with lock:
            await self._workers.run(
                partial(store, self._sandbox.root, path, upload.account, spool, upload.metadata)
            )
        shown = printable(path)
        stored: Stored = {"name": posixpath.basename(shown), "path": shown, "type": "file"}
        return stored | {"metadata": upload.metadata} if upload.metadata else stored


def resolve(path: str, account: Account, *, workdir: str) -> str:
    """Make a path absolute; errors are worded as E2B does."""
    try:
        return resolve_path(path, account, workdir=workdir)
    except InvalidPath as error:
        raise FileError(400, f"error expanding and resolving path '{path}': {error}") from error


def _target(part: PartStart, upload: Upload, stored: Mapping[str, Stored]) -> str:
    name = upload.path or part.filename
    if name is None:
        raise FileError(
            400,
            "error getting multipart custom part file name: "
            "filename not found in Content-Disposition header",
        )
    path = resolve(name, upload.account, workdir=upload.workdir)
    if path in stored:
        others = [other for other in stored if other != path]
        text = (
            f"you cannot upload multiple files to the same path '{path}' in one upload request, "
            "only the first specified file was uploaded"
        )
        also = f", also the following files were uploaded: {', '.join(others)}"
        raise FileError(400, text + also if others else text)
    return path


async def _write(spool: Spool, data: bytes) -> None:
    try:
        with reported("error writing file"):
            await spool.write(data)
    except NoRoom as error:
        raise FileError(507, NO_ROOM) from error
