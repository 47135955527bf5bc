"""Pointers: what git has in the place of a large file.

version https://git-lfs.github.com/spec/v1
oid sha256:{64 hexadecimal digits}
size {bytes}
"""

import re
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from sandbox_server.git.lfs.protocol import LfsObject

MAX_POINTER: Final = 1024
"""A larger file is none."""

_POINTER = re.compile(
    rb"version https?://[^\n]{1,200}\n(?:ext-[^\n]*\n)*oid sha256:(?P<oid>[0-9a-f]{64})\n"
    rb"size (?P<size>[0-9]{1,16})\n?"
)


def parse_pointer(content: bytes) -> LfsObject | None:
    found = _POINTER.fullmatch(content)
    if found is None:
        return None
    try:
        return LfsObject(oid=found["oid"].decode(), size=int(found["size"]))
    except ValidationError:
        return None


def read_pointers(batch: bytes) -> Iterator[tuple[str, LfsObject]]:
    """Read the pointers among the objects that `git cat-file --batch` printed, with their names in git."""
    at = 0
    while (end := batch.find(b"\n", at)) >= 0:
        words = batch[at:end].split(b" ")
        at = end + 1
        if len(words) != 3 or not words[2].isdigit():  # noqa: PLR2004
            continue  # "missing"
        size = int(words[2])
        pointer = parse_pointer(batch[at : at + size])
        at += size + 1
        if pointer is not None:
            yield words[0].decode(), pointer
