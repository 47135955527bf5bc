import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import Protocol

from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.files import Change
from sandbox_server.log.follower import Follower

ENDED = "ended"
"""What the last event is called, and its id: who comes back with it is told that there are no more."""

_MOST_WAITING = 500
_PACE_S = 0.05  # as much as is there by then goes out at once


class FollowerRegistry(Protocol):
    """Where all who follow something at a server are known, to end with it."""

    def registered(self, follower: Follower, /) -> AbstractContextManager[None]: ...


class FileWatch:
    """One who follows what happens to files: told as it comes, and stored nowhere.

    Who is slow holds up the sandbox's reports, which break off there at some time.
    """

    def __init__(
        self,
        changes: AsyncGenerator[Change, None],
        leaving: Callable[[], Awaitable[str]],
        *,
        cut: Callable[[], None] | None,
    ) -> None:
        self._changes = changes
        self._leaving = leaving
        self._cut = cut
        self._waiting: list[Mapping[str, str]] = []
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._reason: str | None = None
        self._handed_at: float | None = None

    def end(self) -> None:
        self._end("The server has ended the stream.")

    def cut_off(self) -> None:
        self.end()
        if self._handed_at is not None and self._cut is not None:
            self._cut()

    def is_stalled(self, *, since: float) -> bool:
        return self._handed_at is not None and self._handed_at < since

    async def texts(self, register: FollowerRegistry) -> AsyncGenerator[bytes, None]:
        """Give events as they are sent, until the sandbox runs no more or the stream is ended."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._collect()), loop.create_task(self._attend())]
        try:
            with register.registered(self):
                while self._reason is None or self._waiting:
                    await self._arrived.wait()
                    self._arrived.clear()
                    told, self._waiting = self._waiting, []
                    self._room.set()
                    self._handed_at = loop.time()
                    yield b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in told)
                    self._handed_at = None
                    await asyncio.sleep(_PACE_S)
                last = json.dumps({"type": ENDED, "reason": self._reason}).encode()
                yield b"id: %b\ndata: %b\n\n" % (ENDED.encode(), last)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _collect(self) -> None:
        try:
            async with aclosing(self._changes) as changes:
                async for change in changes:
                    await self._put({"type": change.type, "path": change.path})
        except SandboxError as error:
            self._end(str(error))
        else:
            self._end("The sandbox has ended its reports.")

    async def _put(self, told: Mapping[str, str]) -> None:
        while len(self._waiting) >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(told)
        self._arrived.set()

    async def _attend(self) -> None:
        try:
            self._end(await self._leaving())
        except (SandboxError, *OUTAGES) as error:
            self._end(str(error) if isinstance(error, SandboxError) else "The database is away.")

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._arrived.set()
