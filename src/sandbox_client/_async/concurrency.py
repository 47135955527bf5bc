"""Waiting, locks and file access of the asynchronous variant. Its counterpart in `_sync` is written by hand."""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import BinaryIO, ParamSpec, Protocol, TypeAlias, runtime_checkable

P = ParamSpec("P")


@runtime_checkable
class Readable(Protocol):
    """A binary file open for reading."""

    def read(self, size: int, /) -> bytes: ...


Callback: TypeAlias = Callable[P, Awaitable[None] | None]
Content: TypeAlias = bytes | str | Path | Readable | Iterable[bytes] | AsyncIterable[bytes]

Lock = asyncio.Lock
sleep = asyncio.sleep

_PART = 1024 * 1024


async def invoke(callback: Callback[P] | None, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a callback, and await its result if needed."""
    if callback is not None and inspect.isawaitable(begun := callback(*args, **kwargs)):
        await begun


async def parts_of(content: Content) -> AsyncIterator[bytes]:
    """Yield content in parts; files are read in a thread."""
    if isinstance(content, str | bytes):
        yield content.encode() if isinstance(content, str) else content
    elif isinstance(content, Path):
        with await asyncio.to_thread(content.open, "rb") as file:
            async for part in _parts_of_file(file):
                yield part
    elif isinstance(content, AsyncIterable):
        async for part in content:
            yield part
    elif isinstance(content, Readable):
        async for part in _parts_of_file(content):
            yield part
    else:
        for part in content:
            yield part


async def write(file: BinaryIO, part: bytes) -> None:
    await asyncio.to_thread(file.write, part)


async def _parts_of_file(file: Readable) -> AsyncIterator[bytes]:
    while part := await asyncio.to_thread(file.read, _PART):
        yield part
