"""Runs in a sandbox: a WebSocket server, by hand, that sends back what it receives."""

import asyncio
import base64
import hashlib
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CLOSE = 0x8


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    key = next(value for name, _, value in lines if name.lower() == b"sec-websocket-key")
    accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %s\r\n\r\n" % accept
    )
    opcode = 0
    while opcode != CLOSE:
        opcode, payload = await receive(reader)
        writer.write(bytes([0x80 | opcode]) + length(len(payload)) + payload)
        await writer.drain()
    writer.close()


async def receive(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, size = await reader.readexactly(2)
    size &= 0x7F
    if size > 125:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    mask = await reader.readexactly(4) * (size // 4 + 1)
    masked = await reader.readexactly(size)
    plain = int.from_bytes(masked, "big") ^ int.from_bytes(mask[:size], "big")
    return first & 0x0F, plain.to_bytes(size, "big")


def length(size: int) -> bytes:
    if size < 126:
        return bytes([size])
    return (
        b"\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x7f" + size.to_bytes(8, "big")
    )


async def main() -> None:
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()


asyncio.run(main())
