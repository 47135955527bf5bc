import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import (
    InvalidTransition,
    NotReady,
    ResumeFailed,
    SandboxFailed,
    SandboxPaused,
    StartFailed,
    StartRefused,
)
from sandbox_server.domain.events import Cause
from sandbox_server.domain.state import ENDED, State, Target, serves
from sandbox_server.sandboxes.changes import Changes, Follower
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, cause_of

T = TypeVar("T")

ASK_AGAIN = timedelta(seconds=2)
"""The `Retry-After` of answers about a sandbox on its way to another state."""

POLL_EVERY = timedelta(seconds=2)
_POLL_SELDOM = timedelta(seconds=30)
_EVER = timedelta(days=1)


class Watch:
    """Waits for changes that happen after it was opened."""

    def __init__(self, sessions: Sessions, follower: Follower, *, poll_every: timedelta) -> None:
        self._sessions = sessions
        self._follower = follower
        self._poll_every = poll_every

    async def until_settled(self, row: Sandbox, *, wait: timedelta) -> Sandbox:
        """Return the row once it has reached its target, or as it is at the end of the wait."""
        return await self.until(_is_settled, row, partial(self._read, row), wait=wait)

    async def until_changed(self, row: Sandbox) -> Sandbox:
        """Return the row once it is in another state."""
        before = row.state
        while row.state is before:
            read = partial(self._read, row)
            row = await self.until(lambda now: now.state is not before, row, read, wait=_EVER)
        return row

    async def _read(self, row: Sandbox, committed: Sandbox | None) -> Sandbox:
        if committed is not None:
            return committed
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
        """Read the row at each change until it is `done`; `read` gets the row that a notification carried."""
        loop = asyncio.get_running_loop()
        over = loop.time() + wait.total_seconds()
        while not done(row) and (left := over - loop.time()) > 0:
            longest = min(timedelta(seconds=left), self._poll_every)
            row = await read(await self._follower.wait(longest=longest))
        return row


class Waiting:
    """Lets callers wait for sandboxes: woken by notifications, which may be lost, and by polling."""

    def __init__(self, sessions: Sessions, changes: Changes) -> None:
        self._sessions = sessions
        self._changes = changes

    async def follow(self, sandbox_id: str, *, tenant_id: str) -> AsyncGenerator[Sandbox, None]:
        """Yield a sandbox as it is, and again in each state that it enters until it has ended."""
        with self._changes.follow(sandbox_id) as follower:
            watch = Watch(self._sessions, follower, poll_every=_POLL_SELDOM)
            async with without_transaction(self._sessions) as session:
                row = await SandboxRepository(session).get(sandbox_id, tenant_id=tenant_id)
            yield row
            while row.state not in ENDED:
                row = await watch.until_changed(row)
                yield row

    def notifications(self, row_id: str) -> AbstractContextManager[Follower]:
        """Follow a row's notifications without reading it."""
        return self._changes.follow(row_id)

    @contextmanager
    def watch(self, row_id: str, *, poll_every: timedelta = POLL_EVERY) -> Iterator[Watch]:
        """Watch a row; open this before the row is read or written, so that no change is missed."""
        with self._changes.follow(row_id) as follower:
            yield Watch(self._sessions, follower, poll_every=poll_every)


def _is_settled(row: Sandbox) -> bool:
    return serves(row.state, row.target)


def require_begun(row: Sandbox) -> Sandbox:
    """Return a new sandbox that runs or may still start; otherwise raise the reason."""
    if row.state is State.STOPPED and cause_of(row).cause is not Cause.QUEUE_DEADLINE:
        raise InvalidTransition(row.state, State.RUNNING)  # deleted, or its timeout expired
    if row.state in ENDED:
        raise (StartRefused if cause_of(row).is_refusal else StartFailed)(_reason(row))
    return row


def require_not_lost(row: Sandbox) -> Sandbox:
    """Return a sandbox that has not failed."""
    if row.state is State.FAILED:
        raise SandboxFailed(_reason(row))
    return row


def require_on_its_way(row: Sandbox) -> Sandbox:
    """Return a sandbox that runs or may still resume; otherwise raise the reason."""
    require_not_lost(row)
    if row.target is Target.GONE:
        raise InvalidTransition(_end_of(row), State.RUNNING)
    if row.target is Target.PAUSED:
        if cause_of(row).cause is Cause.PROVIDER:
            raise ResumeFailed(_reason(row))
        raise SandboxPaused(row.id, _reason(row))  # by another request or a deadline
    return row


def require_running(row: Sandbox) -> Sandbox:
    """Return a sandbox that can be used now."""
    require_on_its_way(row)
    if row.state is not State.RUNNING:
        raise NotReady(row.state, retry_after=ASK_AGAIN)
    return row


def _end_of(row: Sandbox) -> State:
    return row.state if row.state in ENDED else State.STOPPING


def _reason(row: Sandbox) -> str:
    return row.state_reason or "reason not recorded"
