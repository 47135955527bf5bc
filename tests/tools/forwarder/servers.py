"""A forwarder, upstream proxies and servers, each on a port of the loopback interface."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from sandbox_tools.forwarder.proxy import LIMIT, Forwarder

WAIT = 20


@asynccontextmanager
async def listening(serve) -> AsyncIterator[int]:
    """Listen on a free port for the block."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LIMIT)
    async with server:
        yield server.sockets[0].getsockname()[1]


@dataclass
class Site:
    """A server that answers with what it was sent."""

    heads: list[str] = field(default_factory=list)

    async def __call__(self, reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            await writer.drain()
        writer.close()


@dataclass
class UpstreamProxy:
    """A proxy that requires a user and password, and leads every host to one port."""

    port_of_site: int
    user: str = "anna"
    password: str = "secret"
    heads: list[str] = field(default_factory=list)

    @property
    def authorization(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    async def __call__(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if f"Proxy-Authorization: {self.authorization}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        onward, into = await asyncio.open_connection("127.0.0.1", self.port_of_site)
        if head.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            into.write(head.encode())
        await asyncio.gather(_copy(reader, into), _copy(onward, writer))


async def _copy(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(LIMIT):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass
class Client:
    """A browser at the forwarder."""

    port: int
    forwarder: Forwarder

    async def say(self, *parts: bytes, until: bytes | None = None) -> bytes:
        """Send bytes; gives the answer up to its end. Between the parts it waits for `until`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        async with asyncio.timeout(WAIT):
            for at, part in enumerate(parts):
                writer.write(part)
                if at < len(parts) - 1:
                    answer += await reader.readuntil(until or b"\r\n\r\n")
            answer += await reader.read()
        writer.close()
        return answer

    async def get(self, url: str) -> bytes:
        return await self.say(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
