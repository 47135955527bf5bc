"""Streams of events as they come over a socket."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Told:
    id: int
    data: dict[str, Any]


class Followed:
    """One stream as a reader has it, event by event."""

    def __init__(self, response):
        self.headers = response.headers
        self._lines = response.aiter_lines()
        self.told = []

    def __aiter__(self):
        return self

    async def __anext__(self):
        number = 0
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value) if value.isdecimal() else 0
            elif name == "data":
                self.told.append(Told(number, json.loads(value)))
                return self.told[-1]
        raise StopAsyncIteration

    async def until(self, kind):
        """Read on until something of this type is told."""
        async for one in self:
            if one.data["type"] == kind:
                return one
        raise AssertionError(f"the stream ended without {kind}: {self.told}")

    async def rest(self):
        """Read to the end; gives all that was told since the beginning."""
        async for _ in self:
            pass
        return self.told


@asynccontextmanager
async def following(caller, path, *, after=None, method="GET", headers=None, **options):
    """Follow what is there, after what was told before if that is given."""
    headers = {"Accept": "text/event-stream", **(headers or {})}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    async with caller.stream(method, path, headers=headers, **options) as response:
        assert response.status_code == httpx.codes.OK, (await response.aread()).decode()
        yield Followed(response)
