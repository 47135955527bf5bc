import asyncio
import struct
from typing import Any

from PIL import Image

_TIMEOUT_SECONDS = 60


class RfbViewer:
    """A client of RFB, as little as a viewer needs, over a WebSocket or what reads like one."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self._buffer = b""
        self.size = (0, 0)

    async def read(self, length: int) -> bytes:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while len(self._buffer) < length:
                self._buffer += await self.socket.recv(decode=False)
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    async def shake_hands(self, *, shared: bool = True) -> None:
        assert await self.read(12) == b"RFB 003.008\n"
        await self.socket.send(b"RFB 003.008\n")
        await self.read((await self.read(1))[0])
        await self.socket.send(b"\1")
        assert await self.read(4) == bytes(4)
        await self.socket.send(bytes([shared]))
        start = await self.read(24)
        self.size = struct.unpack_from(">HH", start)
        await self.read(struct.unpack_from(">I", start, 20)[0])

    async def key(self, keysym: int, *, is_down: bool) -> None:
        await self.socket.send(struct.pack(">BBxxI", 4, is_down, keysym))

    async def pointer(self, x: int, y: int, buttons: int = 0) -> None:
        await self.socket.send(struct.pack(">BBHH", 5, buttons, x, y))

    async def request(self, *, incremental: bool = False) -> None:
        await self.socket.send(struct.pack(">BBHHHH", 3, incremental, 0, 0, *self.size))

    async def picture(self) -> Image.Image:
        """Ask for the whole picture, until an update has all of it."""
        picture, area = Image.new("RGB", self.size), 0
        while area < self.size[0] * self.size[1]:
            area = 0
            for _ in range(await self.update()):
                x, y, width, height, encoding = struct.unpack(">HHHHi", await self.read(12))
                assert encoding == 0, "raw pixels are all that was offered"
                pixels = await self.read(4 * width * height)
                if pixels:
                    part = Image.frombytes("RGB", (width, height), pixels, "raw", "BGRX")
                    picture.paste(part, (x, y))
                area += width * height
        return picture

    async def update(self) -> int:
        """Ask for the whole picture, and read until the update has begun; its number of rectangles."""
        await self.request()
        kind, count = struct.unpack(">BxH", await self.read(4))
        assert kind == 0
        return int(count)
