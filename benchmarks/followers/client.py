"""Follows a stream over many connections in one process: `python -m benchmarks.followers.client URL COUNT`.

Says `following` when all streams are open. When its input ends it says how long events took, and what was lost.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from time import monotonic
from typing import cast
from urllib.parse import urlsplit

import uvloop

# Each event's reason contains the time at which it was written.
_EVENT = re.compile(rb'id: (\d+)\ndata: [^\n]*?"reason":"([0-9.]+)"')


class Follower(asyncio.Protocol):
    """One connection that parses no more than necessary."""

    def __init__(self, head: bytes, latencies: Counter[int], opened: asyncio.Queue[None]) -> None:
        self.last = 0
        self.lost = 0
        self.received = 0
        self.closed = False
        self._head = head
        self._latencies = latencies
        self._opened = opened
        self._left = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._head)

    def data_received(self, data: bytes) -> None:
        now = monotonic()
        if not self._is_open:
            self._is_open = True
            self._opened.put_nowait(None)
        data = self._left + data
        end = data.rfind(b"\n\n") + 2
        self._left = data[end:]
        for found in _EVENT.finditer(data, 0, end):
            number = int(found[1])
            self.lost += number != self.last + 1 and self.last > 0
            self.last = number
            self.received += 1
            self._latencies[int((now - float(found[2])) * 1000)] += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own
        self.closed = True


async def follow(url: str, key: str, count: int) -> None:
    parts = urlsplit(url)
    head = (
        f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Accept: text/event-stream\r\nX-API-Key: {key}\r\n\r\n"
    ).encode()
    latencies: Counter[int] = Counter()
    opened: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    followers = []
    for _ in range(count):
        _, follower = await loop.create_connection(
            lambda: Follower(head, latencies, opened), str(parts.hostname), parts.port or 80
        )
        followers.append(follower)
    for _ in followers:
        await opened.get()
    print("following", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    told = {
        "latencies_ms": latencies,
        "received": sum(follower.received for follower in followers),
        "lost": sum(follower.lost for follower in followers),
        "closed": sum(follower.closed for follower in followers),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    uvloop.run(follow(sys.argv[1], sys.argv[2], int(sys.argv[3])))
