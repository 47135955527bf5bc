import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.state import ENDED, serves
from sandbox_server.sandboxes.changes import Changes, Follower
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

T = TypeVar("T")

LOOK_AGAIN = timedelta(seconds=2)
_LOOK_SELDOM = timedelta(seconds=30)
_EVER = timedelta(days=1)


class Watch:
    """Sees what becomes of something from the moment that it was opened."""

    def __init__(self, sessions: Sessions, follower: Follower, *, look_again: timedelta) -> None:
        self._sessions = sessions
        self._follower = follower
        self._look_again = look_again

    async def until_settled(self, row: Sandbox, *, wait: timedelta) -> Sandbox:
        """Give the row once it is what is wanted of it, or as it is when the wait is over."""
        return await self.until(_is_settled, row, partial(self._read, row), wait=wait)

    async def until_changed(self, row: Sandbox) -> Sandbox:
        """Give the row once it is in another state."""
        before = row.state
        while row.state is before:
            read = partial(self._read, row)
            row = await self.until(lambda now: now.state is not before, row, read, wait=_EVER)
        return row

    async def _read(self, row: Sandbox, told: Sandbox | None) -> Sandbox:
        if told is not None:
            return told
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).get(row.id, tenant_id=row.tenant_id)

    async def until(
        self,
        done: Callable[[T], bool],
        row: T,
        read: Callable[[Sandbox | None], Awaitable[T]],
        *,
        wait: timedelta,
    ) -> T:
        """Read anew at each change until it is done; `read` gets the row of a sandbox that was told."""
        loop = asyncio.get_running_loop()
        over = loop.time() + wait.total_seconds()
        while not done(row) and (left := over - loop.time()) > 0:
            longest = min(timedelta(seconds=left), self._look_again)
            row = await read(await self._follower.wait(longest=longest))
        return row


class Waiting:
    """Lets callers wait for what they asked for; told of changes, and looking now and then if nobody tells."""

    def __init__(
        self, sessions: Sessions, changes: Changes, *, look_again: timedelta = LOOK_AGAIN
    ) -> None:
        self._sessions = sessions
        self._changes = changes
        self._look_again = look_again

    async def follow(self, sandbox_id: str, *, tenant_id: str) -> AsyncGenerator[Sandbox, None]:
        """Give a sandbox as it is, and again in each state that it is seen in until it has ended."""
        with self._changes.follow(sandbox_id) as follower:
            watch = Watch(self._sessions, follower, look_again=_LOOK_SELDOM)
            async with without_transaction(self._sessions) as session:
                row = await SandboxRepository(session).get(sandbox_id, tenant_id=tenant_id)
            yield row
            while row.state not in ENDED:
                row = await watch.until_changed(row)
                yield row

    @contextmanager
    def watch(self, row_id: str) -> Iterator[Watch]:
        """Watch from before the row is read or written, so that no change is missed."""
        with self._changes.follow(row_id) as follower:
            yield Watch(self._sessions, follower, look_again=self._look_again)


def _is_settled(row: Sandbox) -> bool:
    return serves(row.state, row.target)
