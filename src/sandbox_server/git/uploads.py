import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from sandbox_server.providers.e2b.transfers import Transfers

_PART = 1024 * 1024


async def upload_file(transfers: Transfers, path: Path, target: str) -> None:
    parts = _FileParts(path)
    await transfers.upload(target, parts, length=parts.length, reported_path=target)


async def upload_bytes(transfers: Transfers, content: bytes, target: str) -> None:
    await transfers.upload(target, _once(content), length=len(content), reported_path=target)


async def _once(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


class _FileParts(AsyncGenerator[bytes, None]):
    """The content of a file, of the length that it has now.

    An upload that is refused early closes its parts while the next one is being read, which a generator of the language does
    not allow.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._left = self.length = path.stat().st_size
        self._reading = asyncio.Lock()

    async def asend(self, _value: None) -> bytes:
        async with self._reading:
            part = await self._read() if self._left and not self._file.closed else b""
        if not part:
            raise StopAsyncIteration
        return part

    async def athrow(self, *error: Any) -> bytes:
        await self.aclose()
        return await super().athrow(*error)

    async def aclose(self) -> None:
        async with self._reading:
            self._file.close()

    async def _read(self) -> bytes:
        part = await asyncio.to_thread(self._file.read, min(_PART, self._left))
        self._left -= len(part)
        return part
