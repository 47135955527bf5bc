"""Waiting and locking in this variant; the other variant has a module of the same names, and neither is generated from the other."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, ParamSpec, Protocol, TypeAlias, runtime_checkable

P = ParamSpec("P")


@runtime_checkable
class Readable(Protocol):
    """A binary file open for reading."""

    def read(self, size: int, /) -> bytes: ...


Callback: TypeAlias = Callable[P, None]
Content: TypeAlias = bytes | str | Path | Readable | Iterable[bytes]

Lock = threading.Lock
sleep = time.sleep

_PART = 1024 * 1024


def invoke(callback: Callback[P] | None, *args: P.args, **kwargs: P.kwargs) -> None:
    if callback is not None:
        callback(*args, **kwargs)


def parts_of(content: Content) -> Iterator[bytes]:
    """Yield content in parts."""
    if isinstance(content, str | bytes):
        yield content.encode() if isinstance(content, str) else content
    elif isinstance(content, Path):
        with content.open("rb") as file:
            yield from _parts_of_file(file)
    elif isinstance(content, Readable):
        yield from _parts_of_file(content)
    else:
        yield from content


def write(file: BinaryIO, part: bytes) -> None:
    file.write(part)


def _parts_of_file(file: Readable) -> Iterator[bytes]:
    while part := file.read(_PART):
        yield part
