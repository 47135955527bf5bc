"""A client of the RFB protocol (RFC 6143) for Xvnc on this machine."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

VERSION = b"RFB 003.008\n"
NO_SECURITY = 1
_COLOUR_MAP, _BELL, _CLIPBOARD = 1, 2, 3
_RAW = 0
_EXTENDED_DESKTOP_SIZE = -308
# 32 bits per pixel, little-endian, blue first: what Xvnc has in memory, so that it only copies.
_PIXEL_FORMAT = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
_PIXEL_BYTES = 4
_BUFFER_BYTES = 1 << 20
_ANSWER_SECONDS = 20.0


class DisplayUnavailable(Exception):
    """Xvnc is not running, does not answer, or ended."""


class ResizeRefused(Exception):
    """Xvnc does not make the display of that size."""


class RfbConnection:
    """Sends input to a display and keeps a copy of its pixels, which changes only on request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._busy = asyncio.Lock()
        self._received = asyncio.Condition()
        self._whole_updates = 0
        self._size_updates = 0
        self._changes = 0
        self._resize_status: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._pixels = bytearray()
        self.width = self.height = 0

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Shake hands, then read what Xvnc sends until the connection ends."""
        await shake_hands(self._reader, self._writer)
        start = await self._reader.readexactly(24)
        self._set_size(*struct.unpack_from(">HH", start))
        await self._reader.readexactly(struct.unpack_from(">I", start, 20)[0])
        self._writer.write(b"\0\0\0\0" + _PIXEL_FORMAT)
        # Without an encoding for cursors, Xvnc draws the pointer into the picture.
        self._writer.write(struct.pack(">BxHii", 2, 2, _RAW, _EXTENDED_DESKTOP_SIZE))
        self._task = asyncio.create_task(self._read_messages())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()

    def send_pointer(self, x: int, y: int, buttons: int) -> None:
        self._send(struct.pack(">BBHH", 5, buttons, x, y))

    def send_key(self, keysym: int, *, is_down: bool) -> None:
        self._send(struct.pack(">BBxxI", 4, is_down, keysym))

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the display; RandR tells programs."""
        async with self._busy:
            self._resize_status = None
            screen = struct.pack(">IHHHHI", 0, 0, 0, width, height, 0)
            self._send(struct.pack(">BxHHBx", 251, width, height, 1) + screen)
            self._request(incremental=True)
            await self._wait_until(lambda: self._resize_status is not None)
            if self._resize_status:
                raise ResizeRefused

    async def capture(self) -> tuple[int, int, bytes]:
        """Return width, height and the pixels of now, each as blue, green, red and a byte without meaning."""
        async with self._busy:
            # Xvnc answers it with the display's size only; the pixels come with the next request.
            sizes = self._size_updates
            self._request(incremental=False)
            await self._wait_until(lambda: self._size_updates > sizes)
            seen = self._whole_updates
            while self._whole_updates == seen:
                size_updates = self._size_updates
                self._request(incremental=True)
                await self._wait_until(
                    lambda sizes=size_updates: (  # type: ignore[misc]
                        self._whole_updates > seen or self._size_updates > sizes
                    )
                )
            return self.width, self.height, bytes(self._pixels)

    def copy_pixels(self) -> tuple[int, int, bytes]:
        """Return the pixels received so far."""
        return self.width, self.height, bytes(self._pixels)

    async def wait_for_change(self, seconds: float) -> bool:
        """Receive changes of the picture, waiting at most `seconds` for the first one."""
        seen = self._changes
        self._request(incremental=True)
        try:
            await self._wait_until(lambda: self._changes > seen, seconds)
        except TimeoutError:
            return False
        return True

    async def _wait_until(self, happened: Callable[[], bool], seconds: float | None = None) -> None:
        try:
            async with asyncio.timeout(seconds or _ANSWER_SECONDS), self._received:
                await self._received.wait_for(lambda: happened() or not self.is_open)
        except TimeoutError:
            if seconds is None:
                raise DisplayUnavailable("The display does not respond.") from None
            raise
        if not self.is_open:
            raise DisplayUnavailable("The display ended.")

    def _request(self, *, incremental: bool) -> None:
        self._send(struct.pack(">BBHHHH", 3, incremental, 0, 0, self.width, self.height))

    def _send(self, message: bytes) -> None:
        if not self.is_open:
            raise DisplayUnavailable("The display ended.")
        self._writer.write(message)

    async def _read_messages(self) -> None:
        try:
            while True:
                await self._read_message()
        except (OSError, EOFError):
            return
        finally:
            self._writer.close()
            async with self._received:
                self._received.notify_all()

    async def _read_message(self) -> None:
        kind = (await self._reader.readexactly(1))[0]
        if kind == 0:
            await self._read_update()
        elif kind == _COLOUR_MAP:
            (count,) = struct.unpack(">3xH", await self._reader.readexactly(5))
            await self._reader.readexactly(6 * count)
        elif kind == _CLIPBOARD:
            (size,) = struct.unpack(">3xi", await self._reader.readexactly(7))
            await self._discard(abs(size))
        elif kind != _BELL:
            raise EOFError(f"Xvnc sent a message of type {kind}.")

    async def _read_update(self) -> None:
        (count,) = struct.unpack(">xH", await self._reader.readexactly(3))
        area = 0
        for _ in range(count):
            area += await self._read_rectangle()
        async with self._received:
            self._size_updates += area == 0
            self._changes += area > 0
            self._whole_updates += area >= self.width * self.height
            self._received.notify_all()

    async def _read_rectangle(self) -> int:
        x, y, width, height, encoding = struct.unpack(">HHHHi", await self._reader.readexactly(12))
        if encoding == _EXTENDED_DESKTOP_SIZE:
            (screens,) = struct.unpack(">B3x", await self._reader.readexactly(4))
            await self._reader.readexactly(16 * screens)
            reason, status = x, y
            if not (reason and status):
                self._set_size(width, height)
            if reason == 1:  # the answer to this client
                self._resize_status = status
            return 0
        self._store(x, y, width, await self._reader.readexactly(width * height * _PIXEL_BYTES))
        return int(width * height)

    def _store(self, x: int, y: int, width: int, content: bytes) -> None:
        length = width * _PIXEL_BYTES
        row = self.width * _PIXEL_BYTES
        start = y * row + x * _PIXEL_BYTES
        if length == row:
            self._pixels[start : start + len(content)] = content
            return
        for offset in range(0, len(content), length):
            self._pixels[start : start + length] = content[offset : offset + length]
            start += row

    def _set_size(self, width: int, height: int) -> None:
        if (width, height) != (self.width, self.height):
            self.width, self.height = width, height
            self._pixels = bytearray(width * height * _PIXEL_BYTES)

    async def _discard(self, size: int) -> None:
        while size:
            size -= len(await self._reader.readexactly(min(size, _BUFFER_BYTES)))


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do a client's part of the handshake, up to and without the size of the display."""
    await reader.readexactly(len(VERSION))
    writer.write(VERSION)
    kinds = await reader.readexactly((await reader.readexactly(1))[0])
    if NO_SECURITY not in kinds:
        raise DisplayUnavailable("The display requires a password.")
    writer.write(bytes([NO_SECURITY]))
    if await reader.readexactly(4) != bytes(4):
        raise DisplayUnavailable("The display refused the connection.")
    writer.write(b"\1")  # other clients stay connected


async def open_socket(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_unix_connection(path, limit=_BUFFER_BYTES)
    except OSError:
        raise DisplayUnavailable("The display is not running.") from None


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[RfbConnection]:
    """Connect to the Xvnc that listens at `path`."""
    connection = await connect(path)
    try:
        yield connection
    finally:
        await connection.close()


async def connect(path: Path) -> RfbConnection:
    reader, writer = await open_socket(path)
    connection = RfbConnection(reader, writer)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await connection.start()
    except (OSError, EOFError):
        writer.close()
        raise DisplayUnavailable("The display does not respond.") from None
    return connection
