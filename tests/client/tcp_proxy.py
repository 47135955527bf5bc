"""A TCP proxy between client and server that can cut connections."""

import asyncio
from typing import Self


class TcpProxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._silent: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        """Break all open connections."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def silence(self) -> None:
        """Drop all further data from the server on the open connections."""
        self._silent |= self._connections

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        sides = [writer]
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self._target)
            sides.append(here)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, here))
                group.create_task(self._pass_on(there, writer, answers_of=task))
        except (ExceptionGroup, asyncio.CancelledError):
            pass  # one side has left, or the wire was cut
        finally:
            self._connections.discard(task)
            for side in sides:
                side.transport.abort()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers_of: asyncio.Task[None] | None = None,
    ) -> None:
        while chunk := await reader.read(65536):
            if answers_of not in self._silent:
                writer.write(chunk)
                await writer.drain()
        raise ConnectionError("One side has left.")
