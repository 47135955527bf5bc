"""Viewers of terminals, as programs of callers are."""

import asyncio
import json
from contextlib import asynccontextmanager

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

PATIENCE_S = 30


class Viewer:
    """One connection to a terminal: what was shown and told on it so far."""

    def __init__(self, socket):
        self._socket = socket
        self.shown = b""
        self.told = []
        self.offset = 0
        self.close = None

    async def read(self):
        """Read one message; tells whether there was one."""
        try:
            message = await self._socket.recv()
        except ConnectionClosed as closed:
            self.close = closed.rcvd
            return False
        if isinstance(message, bytes):
            self.shown += message
            self.offset += len(message)
            return True
        told = json.loads(message)
        self.told.append(told)
        if told["type"] == "attached":
            self.offset = told["offset"]
        if told["type"] == "gap" and told["size"] is not None:
            self.offset = told["offset"] + told["size"]
        return True

    async def until_shown(self, text):
        """Read on until this was shown; gives all that was shown until then, which it forgets."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.shown:
                assert await self.read(), (self.close, self.told, self.shown)
        shown, _, self.shown = self.shown.partition(text)
        return shown + text

    async def until_told(self, kind, **fields):
        """Read on until such a message has come; gives it and forgets it with all before it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.told:
                    told = self.told.pop(0)
                    if told["type"] == kind and fields.items() <= told.items():
                        return told
                assert await self.read(), (self.close, self.told, self.shown)

    async def drain(self):
        """Read to the end, however much and long that is, and keep nothing; gives the code and the reason of it."""
        while await self.read():
            self.shown = b""
        return self._ending

    async def until_closed(self):
        """Read to the end; gives the code and the reason of it."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.read():
                pass
        return self._ending

    @property
    def _ending(self):
        return None if self.close is None else (self.close.code, self.close.reason)

    async def type(self, text):
        await self._socket.send(text)

    async def say(self, kind, **fields):
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def say_text(self, text):
        await self._socket.send(text)

    def leave(self):
        """Be gone without a word."""
        self._socket.transport.abort()


@asynccontextmanager
async def viewing(caller, path, **options):
    """Attach to a terminal as the caller of an API client."""
    url = str(caller.base_url.join(path)).replace("http", "ws", 1)
    headers = {name: key for name, key in caller.headers.items() if name == "x-api-key"}
    async with connect(url, additional_headers=headers, max_size=None, **options) as socket:
        yield Viewer(socket)
