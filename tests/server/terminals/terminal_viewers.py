"""WebSocket clients of terminals."""

import asyncio
import json
from contextlib import asynccontextmanager

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

PATIENCE_S = 30


class Viewer:
    """One connection to a terminal, with the output and messages received so far."""

    def __init__(self, socket):
        self._socket = socket
        self.shown = b""
        self.told = []
        self.offset = 0
        self.close = None

    async def read(self):
        """Receive one message; returns whether there was one."""
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
        """Receive until the output contains this; returns and clears the output up to there."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.shown:
                assert await self.read(), (self.close, self.told, self.shown)
        shown, _, self.shown = self.shown.partition(text)
        return shown + text

    async def until_told(self, kind, **fields):
        """Receive until such a message arrives; returns it and clears all earlier ones."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.told:
                    told = self.told.pop(0)
                    if told["type"] == kind and fields.items() <= told.items():
                        return told
                assert await self.read(), (self.close, self.told, self.shown)

    async def drain(self):
        """Receive to the end without keeping anything; returns close code and reason."""
        while await self.read():
            self.shown = b""
        return self._ending

    async def until_closed(self):
        """Receive to the end; returns close code and reason."""
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
        """Disconnect without a close frame."""
        self._socket.transport.abort()


@asynccontextmanager
async def viewing(caller, path, **options):
    """Attach to a terminal with the credentials of an API client."""
    url = str(caller.base_url.join(path)).replace("http", "ws", 1)
    headers = {name: key for name, key in caller.headers.items() if name == "x-api-key"}
    async with connect(url, additional_headers=headers, max_size=None, **options) as socket:
        yield Viewer(socket)
