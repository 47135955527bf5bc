"""Two questions of the X11 protocol, which RFB cannot answer: where the pointer is, and how large the display is."""

import asyncio
import struct
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandbox_tools.desktop.rfb import DisplayUnavailable

_SOCKETS = Path("/tmp/.X11-unix")  # noqa: S108 - the protocol's place
_QUERY_POINTER, _GET_GEOMETRY = 38, 14
_ANSWER_SECONDS = 20


@dataclass(frozen=True)
class Screen:
    """The display's size and the pointer's place on it."""

    width: int
    height: int
    pointer: tuple[int, int]


async def read_screen(display: str) -> Screen:
    """Ask the X server of `display`, such as `:0`."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(
                _SOCKETS / f"X{display.lstrip(':')}"
            )
            with closing(writer):
                return await _ask(reader, writer)
    except (OSError, EOFError):
        raise DisplayUnavailable("The display is not running.") from None


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Screen:
    writer.write(struct.pack("<cxHHHHxx", b"l", 11, 0, 0, 0))
    accepted, units = struct.unpack("<B5xH", await reader.readexactly(8))
    setup = await reader.readexactly(4 * units)
    if accepted != 1:
        raise DisplayUnavailable("The X server refuses programs of this user.")
    (vendor,) = struct.unpack_from("<H", setup, 16)
    root = 32 + (vendor + 3) // 4 * 4 + 8 * setup[21]
    for question in (_QUERY_POINTER, _GET_GEOMETRY):
        writer.write(struct.pack("<BxH4s", question, 2, setup[root : root + 4]))
    x, y = struct.unpack_from("<hh", await _answer(reader), 16)
    width, height = struct.unpack_from("<HH", await _answer(reader), 16)
    return Screen(width, height, (x, y))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    while (message := await reader.readexactly(32))[0] != 1:
        if message[0] == 0:
            raise DisplayUnavailable("The X server does not answer.")
    return message
