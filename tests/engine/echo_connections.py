"""Connections that last, so that it can be told whether they were cut."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.engine.host_networks import socket_in

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Talk:
    """A connection over which whatever is said comes back."""

    caller: socket.socket

    async def says(self, words: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.caller, words)
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await loop.sock_recv(self.caller, 100)


@asynccontextmanager
async def echo(netns: str, address: str) -> AsyncIterator[int]:
    """Run a server that repeats what it hears; yields its port."""
    writers = []

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            while heard := await reader.read(100):
                writer.write(heard)

    listener = socket_in(netns)
    listener.bind((address, 0))
    async with await asyncio.start_server(repeat, sock=listener):
        yield listener.getsockname()[1]
        for writer in writers:  # those that were cut hear of no end
            writer.transport.abort()


@asynccontextmanager
async def talk(netns: str, address: str, port: int) -> AsyncIterator[Talk]:
    """Connect to such a server from a namespace."""
    with socket_in(netns) as caller:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await asyncio.get_running_loop().sock_connect(caller, (address, port))
        yield Talk(caller)
