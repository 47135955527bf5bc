"""DNS as seen from both sides of the forwarder: questions, and resolvers that answer them."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.engine.host_networks import socket_in

A, TRANSFER = 1, 252
ANSWERED, TRUNCATED, SERVER_FAILED, NO_SUCH_NAME, LOOKUP_REFUSED = (
    0x8180,
    0x8380,
    0x8182,
    0x8183,
    0x8185,
)
UPDATE = 0x2800
PORT = 53
_SECONDS = 10.0

Behaviour = Callable[[bytes], Sequence[bytes]]


def question(name: str, *, number: int = 1, kind: int = A, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", number, flags, 1, 0, 0, 0) + labels + struct.pack("!xHH", kind, 1)


def answers(asked: bytes) -> list[bytes]:
    """Behave as a resolver should."""
    return [answer(asked)]


def silence(_asked: bytes) -> list[bytes]:
    """Behave as one that is out of order."""
    return []


def answer(asked: bytes, *addresses: str, flags: int = ANSWERED) -> bytes:
    """Answer a question with addresses, or only with flags that say why not."""
    if flags != ANSWERED:
        return asked[:2] + struct.pack("!5H", flags, 1, 0, 0, 0) + asked[12:]
    record = struct.pack("!HHHIH", 0xC00C, A, 1, 60, 4)
    records = [record + socket.inet_aton(address) for address in addresses or ("192.0.2.80",)]
    head = asked[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0)
    return head + asked[12:] + b"".join(records)


def telling(**addresses: str) -> Behaviour:
    """Behave as a resolver that knows names, each with one address; `_` stands for a dot."""
    known = {name.replace("_", "."): address for name, address in addresses.items()}

    def behave(asked: bytes) -> list[bytes]:
        found = next(
            (name for name in known if question(name)[12:-4] == asked[12:-4].lower()), None
        )
        return [answer(asked, known[found])] if found else [answer(asked, flags=NO_SUCH_NAME)]

    return behave


class Resolver(asyncio.DatagramProtocol):
    """A resolver of the host's that notes who asked it what."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[tuple[bytes, tuple[str, int]]] = []
        self.hears = asyncio.Event()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        for reply in self._consider(data, addr):
            self._transport.sendto(reply, addr)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            asked = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            for reply in self._consider(asked, writer.get_extra_info("peername")):
                writer.write(len(reply).to_bytes(2, "big") + reply)
        writer.close()

    def _consider(self, asked: bytes, peer: tuple[str, int]) -> Sequence[bytes]:
        self.asked.append((asked, peer))
        self.hears.set()
        return self.behaviour(asked)


@asynccontextmanager
async def resolver(address: str, behaviour: Behaviour = answers) -> AsyncIterator[Resolver]:
    """Run a resolver on port 53 of an address of the host."""
    running = Resolver(behaviour)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: running, local_addr=(address, PORT))
    try:
        async with await asyncio.start_server(running.serve, address, PORT):
            yield running
    finally:
        transport.close()


async def ask(netns: str, server: str, message: bytes) -> bytes:
    """Ask a server by UDP, from a namespace."""
    loop = asyncio.get_running_loop()
    with socket_in(netns, socket.SOCK_DGRAM) as asker:
        await loop.sock_connect(asker, (server, PORT))
        await loop.sock_sendall(asker, message)
        async with asyncio.timeout(_SECONDS):
            return await loop.sock_recv(asker, 65535)


@asynccontextmanager
async def connection(
    netns: str, server: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server by TCP, from a namespace."""
    asker = socket_in(netns)
    await asyncio.get_running_loop().sock_connect(asker, (server, PORT))
    reader, writer = await asyncio.open_connection(sock=asker)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask_by_stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
) -> bytes:
    writer.write(len(message).to_bytes(2, "big") + message)
    async with asyncio.timeout(_SECONDS):
        length = int.from_bytes(await reader.readexactly(2), "big")
        return await reader.readexactly(length)
