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
"""Type and id of the last event. A client that reconnects with this id receives 204."""

_MAX_PENDING = 500
_BATCH_INTERVAL_S = 0.05  # events within this interval are sent together


class FollowerRegistry(Protocol):
    """Registers followers, so that they end with the server."""

    def registered(self, follower: Follower, /) -> AbstractContextManager[None]: ...


class FileWatch:
    """One client that watches a directory. Events are not stored.

    A slow client delays the reports of the sandbox, which are eventually interrupted there.
    """

    def __init__(
        self,
        changes: AsyncGenerator[Change, None],
        ended: Callable[[], Awaitable[str]],
        *,
        cut: Callable[[], None] | None,
    ) -> None:
        self._changes = changes
        self._ended = ended
        self._cut = cut
        self._pending: list[Mapping[str, str]] = []
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._reason: str | None = None
        self._sending_since: float | None = None

    def end(self) -> None:
        self._end("The server closed the stream.")

    def disconnect(self) -> None:
        self.end()
        if self._sending_since is not None and self._cut is not None:
            self._cut()

    def is_stalled(self, *, since: float) -> bool:
        return self._sending_since is not None and self._sending_since < since

    async def texts(self, register: FollowerRegistry) -> AsyncGenerator[bytes, None]:
        """Yield serialized events until the sandbox stops running or the stream is ended."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._collect()), loop.create_task(self._wait_for_end())]
        try:
            with register.registered(self):
                while self._reason is None or self._pending:
                    await self._arrived.wait()
                    self._arrived.clear()
                    events, self._pending = self._pending, []
                    self._room.set()
                    self._sending_since = loop.time()
                    yield b"".join(
                        b"data: %b\n\n" % json.dumps(change).encode() for change in events
                    )
                    self._sending_since = None
                    await asyncio.sleep(_BATCH_INTERVAL_S)
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
            self._end("The sandbox closed the watch.")

    async def _put(self, event: Mapping[str, str]) -> None:
        while len(self._pending) >= _MAX_PENDING:
            self._room.clear()
            await self._room.wait()
        self._pending.append(event)
        self._arrived.set()

    async def _wait_for_end(self) -> None:
        try:
            self._end(await self._ended())
        except (SandboxError, *OUTAGES) as error:
            self._end(
                str(error) if isinstance(error, SandboxError) else "The database is unavailable."
            )

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._arrived.set()
