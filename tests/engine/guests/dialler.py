"""Runs in a sandbox: tries to reach places, all at once, and tells what came of each.

A place is `tcp:ADDRESS:PORT`, `udp:ADDRESS:PORT` or `icmp:ADDRESS:0`. Answers to what has no
connection are awaited for PATIENCE seconds.
"""

import asyncio
import json
import os
import socket
import sys

ECHO_REQUEST = bytes.fromhex("0800f7fd00010001")
SECONDS = 20
PATIENCE = float(os.environ.get("PATIENCE", SECONDS))


async def reach(place: str) -> str:
    kind, _, rest = place.partition(":")
    address, _, port = rest.rpartition(":")
    try:
        async with asyncio.timeout(SECONDS if kind == "tcp" else PATIENCE):
            if kind == "tcp":
                return await call(address, int(port))
            return await send(kind, address, int(port))
    except OSError as error:
        return type(error).__name__


async def call(address: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    said = await reader.read(1000)
    writer.close()
    return said.decode()


async def send(kind: str, address: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    protocol = socket.IPPROTO_ICMP if kind == "icmp" else 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, protocol) as sender:
        sender.setblocking(False)
        sender.connect((address, port))
        await loop.sock_sendall(sender, ECHO_REQUEST)
        await loop.sock_recv(sender, 1000)
        return "answered"


async def main() -> None:
    places = sys.argv[1:]
    came_of_it = await asyncio.gather(*map(reach, places))
    sys.stdout.write(json.dumps(dict(zip(places, came_of_it, strict=True))))


asyncio.run(main())
