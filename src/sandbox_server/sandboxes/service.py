from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain import deadlines
from sandbox_server.domain.access import Caller
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.errors import InvalidTransition, SandboxNotFound, SandboxPaused
from sandbox_server.domain.events import Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency, SandboxPatch, SandboxRequest
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.providers.protocol.errors import SandboxNotRunning
from sandbox_server.providers.protocol.provider import Access, Usage
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.changes import Follower
from sandbox_server.sandboxes.creation import Beside, Creation, SessionSandbox
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter, SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox
from sandbox_server.sandboxes.targets import Change, Targets, patched, unchanged
from sandbox_server.sandboxes.waiting import (
    Waiting,
    require_begun,
    require_not_lost,
    require_on_its_way,
    require_running,
)
from sandbox_server.vault import Vault

WAIT = timedelta(seconds=30)

_POLL_SELDOM = timedelta(seconds=15)
_FOR_EVER = timedelta(days=365)

_ATTEMPTS = 3  # a session's sandbox may end between the lookup and the request to connect


class SandboxController:
    """Use cases of sandboxes.

    Every request is committed before it is carried out. A caller may wait for the outcome; the request
    is carried out whether or not the caller still waits.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        *,
        creation: Creation,
        targets: Targets,
        waiting: Waiting,
        access: SandboxAccess,
        activity: ActivityTracker,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._vault = vault
        self._creation = creation
        self._targets = targets
        self._waiting = waiting
        self._access = access
        self.activity = activity

    async def create(
        self,
        caller: Caller,
        wanted: SandboxRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
        beside: Beside | None = None,
    ) -> Sandbox:
        """Create a sandbox; it may still be queued or starting at the end of the wait."""
        sandbox_id = new_id()
        with self._waiting.watch(sandbox_id) as watch:
            created, added = await self._creation.create(
                caller,
                wanted,
                sandbox_id=sandbox_id,
                idempotency=idempotency,
                beside=beside,
            )
            if added is not None:
                self._creation.begin(added)
                return require_begun(await watch.until_settled(added.row, wait=wait))
        return require_begun(await self._wait(caller, created, wait=wait))

    async def find_or_create(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, *, wait: timedelta = WAIT
    ) -> SessionSandbox:
        """Return the session's one sandbox once it runs: found, resumed, or created."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(InvalidTransition, SandboxNotFound):  # it ended since it was found
                return await self._find_or_create(caller, session_id, wanted, wait)
        return await self._find_or_create(caller, session_id, wanted, wait)

    async def get(self, caller: Caller, sandbox_id: str) -> Sandbox:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)

    def follow(self, caller: Caller, sandbox_id: str) -> AsyncGenerator[Sandbox, None]:
        """Yield a sandbox as it is, and again in each state that it enters until it has ended."""
        return self._waiting.follow(sandbox_id, tenant_id=caller.tenant_id)

    async def list_page(
        self, caller: Caller, wanted: SandboxFilter, *, limit: int, before: str | None = None
    ) -> Sequence[Sandbox]:
        """List a tenant's sandboxes, newest first, starting after the id `before`."""
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).list_page(
                caller.tenant_id, wanted, limit=limit, before=before
            )

    async def pause(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """Freeze a sandbox; its memory and files survive until it is resumed."""
        cause = _requested(caller, "Paused by API request.")
        return require_not_lost(await self._want(caller, sandbox_id, Target.PAUSED, cause, wait))

    async def delete(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """Delete a sandbox with its files; one that has ended stays as it is."""
        cause = _requested(caller, "Deleted by API request.")
        return await self._want(caller, sandbox_id, Target.GONE, cause, wait)

    async def resume(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """Resume a paused sandbox once it has a slot."""
        cause = _requested(caller, "Resumed by API request.")
        return await self._want_back(caller, sandbox_id, cause, wait)

    async def connect(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        timeout: timedelta | None = None,
        wait: timedelta = WAIT,
    ) -> Sandbox:
        """Resume a sandbox if it is paused, and extend its timeout; the timeout is never shortened."""

        def change(row: Deadlines, now: datetime) -> Deadlines:
            return deadlines.connect(row, now, timeout=timeout)

        cause = _requested(caller, "Resumed by API request to connect.")
        return await self._want_back(caller, sandbox_id, cause, wait, change)

    async def update(self, caller: Caller, sandbox_id: str, patch: SandboxPatch) -> Sandbox:
        """Change a sandbox's settings; a timeout counts from now, even if that shortens it."""
        return await self._targets.change(
            caller.tenant_id, sandbox_id, patched(patch, caller, self._vault), actor=caller.actor
        )

    async def set_timeout(self, caller: Caller, sandbox_id: str, timeout: timedelta) -> Sandbox:
        """Set the timeout, counted from now."""
        return await self.update(caller, sandbox_id, {"timeout": timeout})

    async def keep_awake(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        awake_for: timedelta,
        timeout: timedelta | None = None,
    ) -> Sandbox:
        """Postpone the idle pause of a sandbox without activity, and with `timeout` its expiry."""

        def change(row: Deadlines, now: datetime) -> Deadlines:
            awake = deadlines.keep_awake(row, now + awake_for)
            return awake if timeout is None else deadlines.connect(awake, now, timeout=timeout)

        return await self._targets.change(
            caller.tenant_id, sandbox_id, lambda _: change, actor=caller.actor
        )

    async def metrics(self, caller: Caller, sandbox_id: str) -> Sequence[Usage]:
        """List a sandbox's resource usage over time; empty where its provider has no data."""
        row = await self.get(caller, sandbox_id)
        if row.backend is None or row.backend_sandbox_id is None or row.state in ENDED:
            return []
        try:
            return await self._backends[row.backend].metrics(row.backend_sandbox_id)
        except SandboxNotRunning:
            return []

    def watch(self, sandbox_id: str) -> AbstractContextManager[Follower]:
        """Follow notifications of a sandbox's changes while the block lasts."""
        return self._waiting.notifications(sandbox_id)

    def list_backends_with(self, capability: str) -> list[str]:
        """List the backends whose sandboxes can have a capability."""
        return self._backends.list_with(capability)

    def find_access(self, row: Sandbox) -> Access | None:
        """Find the credentials of a sandbox; it has none before it started and after it ended."""
        return self._access.find_access(row)

    async def use(
        self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT
    ) -> UsableSandbox:
        """Return a running sandbox and record activity; a paused one is resumed if it has `auto_resume`."""
        row = await self.get(caller, sandbox_id)
        sleeps = row.state is not State.RUNNING or row.target is not Target.RUNNING
        if sleeps:
            row = await self._wake(caller, row, wait)
        await self.activity.touch(row)
        return self._access.usable(row, woken=sleeps)

    async def look_into(self, caller: Caller, sandbox_id: str) -> UsableSandbox:
        """Return a running sandbox without recording activity or resuming it."""
        return self._access.usable(require_running(await self.get(caller, sandbox_id)))

    def reach_into(self, row: Sandbox) -> UsableSandbox:
        """Return the access to a sandbox whose row was read as running."""
        return self._access.usable(row)

    async def until_left(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Wait until a sandbox no longer runs."""

        async def read(committed: Sandbox | None) -> Sandbox:
            return committed or await self.get(caller, sandbox_id)

        with self._waiting.watch(sandbox_id, poll_every=_POLL_SELDOM) as watch:
            row = await self.get(caller, sandbox_id)
            return await watch.until(
                lambda row: row.state is not State.RUNNING, row, read, wait=_FOR_EVER
            )

    async def _find_or_create(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, wait: timedelta
    ) -> SessionSandbox:
        found = await self._creation.find_or_create(caller, session_id, wanted)
        sandbox_id = found.row.id
        if found.created:
            row = require_begun(await self._wait(caller, sandbox_id, wait=wait))
        else:
            row = await self.connect(caller, sandbox_id, timeout=wanted.timeout, wait=wait)
        return replace(found, row=row)

    async def _wake(self, caller: Caller, row: Sandbox, wait: timedelta) -> Sandbox:
        if row.target is Target.PAUSED and not row.auto_resume:
            raise SandboxPaused(row.id)
        cause = TransitionCause(
            cause=Cause.TRAFFIC,
            actor=caller.actor,
            reason="Resumed automatically: the sandbox was used while paused.",
        )
        return require_running(await self._want_back(caller, row.id, cause, wait))

    async def _want(
        self,
        caller: Caller,
        sandbox_id: str,
        target: Target,
        cause: TransitionCause,
        wait: timedelta,
    ) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self._targets.want(caller.tenant_id, sandbox_id, target, cause)
            return await watch.until_settled(row, wait=wait)

    async def _want_back(
        self,
        caller: Caller,
        sandbox_id: str,
        cause: TransitionCause,
        wait: timedelta,
        change: Change = unchanged,
    ) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self._targets.want_back(caller.tenant_id, sandbox_id, cause, change=change)
            return require_on_its_way(await watch.until_settled(row, wait=wait))

    async def _wait(self, caller: Caller, sandbox_id: str, *, wait: timedelta) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self.get(caller, sandbox_id)
            return await watch.until_settled(row, wait=wait)


def _requested(caller: Caller, reason: str) -> TransitionCause:
    return TransitionCause(cause=Cause.REQUEST, actor=caller.actor, reason=reason)
