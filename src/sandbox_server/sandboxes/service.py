from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain import deadlines
from sandbox_server.domain.access import Caller
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.errors import InvalidTransition, SandboxNotFound, SandboxPaused
from sandbox_server.domain.events import Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import ForkRequest, Idempotency, SandboxPatch, SandboxRequest
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.providers.protocol.errors import SandboxNotRunning
from sandbox_server.providers.protocol.provider import Access, Usage
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.answers import (
    require_begun,
    require_not_lost,
    require_on_its_way,
    require_running,
)
from sandbox_server.sandboxes.changes import Changes, Follower
from sandbox_server.sandboxes.creation import Begun, Creation
from sandbox_server.sandboxes.direct_admission import DirectAdmission
from sandbox_server.sandboxes.inline_jobs import InlineJobs
from sandbox_server.sandboxes.patches import patched
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter, SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox
from sandbox_server.sandboxes.session_sandboxes import SessionSandbox, SessionSandboxes
from sandbox_server.sandboxes.targets import Change, Targets, unchanged
from sandbox_server.sandboxes.template_lookup import Offer, TemplateLookup
from sandbox_server.sandboxes.waiting import Waiting
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.vault import Vault

WAIT = timedelta(seconds=30)

_ATTEND_EVERY = timedelta(
    seconds=15
)  # for changes that nobody told of, by those who follow for hours
_FOR_EVER = timedelta(days=365)

_ATTEMPTS = 3  # at a session's sandbox, which may end between being found and being wanted


class SandboxController:
    """What callers may ask of sandboxes.

    Each intent is in the database before anything is done about it. A caller waits for the outcome for as long as it
    likes; what it asked for is carried out whether or not it still waits.
    """

    def __init__(
        self,
        sessions: Sessions,
        scheduler: SandboxQueueScheduler,
        admission: Admission,
        reconciler: Reconciler,
        backends: Backends,
        placement: Placement,
        changes: Changes,
        vault: Vault,
    ) -> None:
        own_work = InlineJobs(scheduler, reconciler)
        self._sessions = sessions
        self._backends = backends
        self._vault = vault
        self._changes = changes
        self._waiting = Waiting(sessions, changes)
        self._attending = Waiting(sessions, changes, look_again=_ATTEND_EVERY)
        self._creation = Creation(
            own_work, admission, DirectAdmission(by=changes.name), placement, vault
        )
        self._intents = Targets(sessions, own_work, admission, backends, changes)
        self._lookup = TemplateLookup(sessions, backends)
        self._of_sessions = SessionSandboxes(sessions, self._creation, self._lookup)
        self._using = SandboxAccess(backends, vault)
        self.activity = ActivityTracker(sessions)
        self.copies = SnapshotService(sessions, scheduler, self._creation, self._waiting)

    async def create(
        self,
        caller: Caller,
        wanted: SandboxRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Sandbox:
        """Make a sandbox; it may still be queued or starting when the wait is over."""
        sandbox_id = new_id()

        async def add(offer: Offer | None) -> tuple[str, Begun | None]:
            async with self._sessions.begin() as session:
                made = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource="sandbox", resource_id=sandbox_id
                )
                if made != sandbox_id:
                    return made, None
                return made, await self._creation.add(
                    session, caller, wanted, sandbox_id=made, offer=offer
                )

        with self._waiting.watch(sandbox_id) as watch:
            made, begun = await self._lookup.attempt(add)
            if begun is not None:
                self._creation.begin(begun)
                return require_begun(await watch.until_settled(begun.row, wait=wait))
        return require_begun(await self._wait(caller, made, wait=wait))

    async def find_or_create(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, *, wait: timedelta = WAIT
    ) -> SessionSandbox:
        """Get the session's one sandbox to run: as it is, resumed, or made now."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(InvalidTransition, SandboxNotFound):  # it ended since it was found
                return await self._find_or_create(caller, session_id, wanted, wait)
        return await self._find_or_create(caller, session_id, wanted, wait)

    async def get(self, caller: Caller, sandbox_id: str) -> Sandbox:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)

    def follow(self, caller: Caller, sandbox_id: str) -> AsyncGenerator[Sandbox, None]:
        """Give a sandbox as it is, and again in each state that it is seen in until it has ended."""
        return self._waiting.follow(sandbox_id, tenant_id=caller.tenant_id)

    async def list_page(
        self, caller: Caller, wanted: SandboxFilter, *, limit: int, before: str | None = None
    ) -> Sequence[Sandbox]:
        """List a tenant's sandboxes, newest first, from the one before the id `before`."""
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).list_page(
                caller.tenant_id, wanted, limit=limit, before=before
            )

    async def pause(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """Freeze a sandbox; its memory and files survive until it is resumed."""
        wish = _cause(caller, "It was asked to be paused.")
        return require_not_lost(await self._want(caller, sandbox_id, Target.PAUSED, wish, wait))

    async def delete(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """End a sandbox and all that is in it; one that has ended stays as it is."""
        wish = _cause(caller, "It was asked to be deleted.")
        return await self._want(caller, sandbox_id, Target.GONE, wish, wait)

    async def resume(self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT) -> Sandbox:
        """Have a sandbox run on where it was paused, once there is a place for it."""
        wish = _cause(caller, "It was asked to be resumed.")
        return await self._want_back(caller, sandbox_id, wish, wait)

    async def connect(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        timeout: timedelta | None = None,
        wait: timedelta = WAIT,
    ) -> Sandbox:
        """Have a sandbox run, and for so long at the least; connecting never takes time from it."""

        def change(row: Deadlines, now: datetime) -> Deadlines:
            return deadlines.connect(row, now, timeout=timeout)

        wish = _cause(caller, "It was asked to be resumed, to connect to it.")
        return await self._want_back(caller, sandbox_id, wish, wait, change)

    async def update(self, caller: Caller, sandbox_id: str, patch: SandboxPatch) -> Sandbox:
        """Change what its owner may of a sandbox; a timeout counts from now, be it less than before."""
        return await self._intents.change(
            caller.tenant_id, sandbox_id, patched(patch, caller, self._vault), actor=caller.actor
        )

    async def set_timeout(self, caller: Caller, sandbox_id: str, timeout: timedelta) -> Sandbox:
        """Give a sandbox exactly so much time from now on."""
        return await self.update(caller, sandbox_id, {"timeout": timeout})

    async def keep_awake(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        awake_for: timedelta,
        timeout: timedelta | None = None,
    ) -> Sandbox:
        """Put a sandbox's idle pause off, though nothing happens in it; with a timeout its end too."""

        def change(row: Deadlines, now: datetime) -> Deadlines:
            awake = deadlines.keep_awake(row, now + awake_for)
            return awake if timeout is None else deadlines.connect(awake, now, timeout=timeout)

        return await self._intents.change(
            caller.tenant_id, sandbox_id, lambda _: change, actor=caller.actor
        )

    async def snapshot(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        name: str | None = None,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Snapshot:
        """Keep a sandbox as it is now; more can be made from the copy, which outlives it."""
        return await self.copies.snapshot(
            caller, sandbox_id, name=name, idempotency=idempotency, wait=wait
        )

    async def fork(
        self,
        caller: Caller,
        sandbox_id: str,
        wanted: ForkRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Sandbox:
        """Make another sandbox with the files that this one has now."""
        return await self.copies.fork(
            caller, sandbox_id, wanted, idempotency=idempotency, wait=wait
        )

    async def metrics(self, caller: Caller, sandbox_id: str) -> Sequence[Usage]:
        """Tell what a sandbox used over time; the list is empty where its provider knows nothing."""
        row = await self.get(caller, sandbox_id)
        if row.backend is None or row.backend_sandbox_id is None or row.state in ENDED:
            return []
        try:
            return await self._backends[row.backend].metrics(row.backend_sandbox_id)
        except SandboxNotRunning:
            return []

    def watch(self, sandbox_id: str) -> AbstractContextManager[Follower]:
        """Hear of a sandbox's changes while the block lasts."""
        return self._changes.follow(sandbox_id)

    def find_access(self, row: Sandbox) -> Access | None:
        """Find how a sandbox is reached; one that has no place yet, or has ended, is not."""
        return self._using.find_access(row)

    async def use(
        self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT
    ) -> UsableSandbox:
        """Get a sandbox to work in, which is activity; one that is paused wakes, if it is such a one."""
        row = await self.get(caller, sandbox_id)
        sleeps = row.state is not State.RUNNING or row.target is not Target.RUNNING
        if sleeps:
            row = await self._wake(caller, row, wait)
        await self.activity.touch(row)
        return self._using.usable(row, woken=sleeps)

    async def look_into(self, caller: Caller, sandbox_id: str) -> UsableSandbox:
        """Get a sandbox that runs, which is no activity and wakes none."""
        return self._using.usable(require_running(await self.get(caller, sandbox_id)))

    def reach_into(self, row: Sandbox) -> UsableSandbox:
        """Get the way into a sandbox that was seen running."""
        return self._using.usable(row)

    async def until_left(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Wait until a sandbox runs no more."""

        async def read(told: Sandbox | None) -> Sandbox:
            return told or await self.get(caller, sandbox_id)

        with self._attending.watch(sandbox_id) as watch:
            row = await self.get(caller, sandbox_id)
            return await watch.until(
                lambda row: row.state is not State.RUNNING, row, read, wait=_FOR_EVER
            )

    async def _find_or_create(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, wait: timedelta
    ) -> SessionSandbox:
        found = await self._of_sessions.find_or_add(caller, session_id, wanted)
        sandbox_id = found.row.id
        if found.created:
            row = require_begun(await self._wait(caller, sandbox_id, wait=wait))
        else:
            row = await self.connect(caller, sandbox_id, timeout=wanted.timeout, wait=wait)
        return replace(found, row=row)

    async def _wake(self, caller: Caller, row: Sandbox, wait: timedelta) -> Sandbox:
        if row.target is Target.PAUSED and not row.auto_resume:
            raise SandboxPaused(row.id)
        wish = TransitionCause(
            cause=Cause.TRAFFIC, actor=caller.actor, reason="It was used while paused."
        )
        return require_running(await self._want_back(caller, row.id, wish, wait))

    async def _want(
        self,
        caller: Caller,
        sandbox_id: str,
        target: Target,
        wish: TransitionCause,
        wait: timedelta,
    ) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self._intents.want(caller.tenant_id, sandbox_id, target, wish)
            return await watch.until_settled(row, wait=wait)

    async def _want_back(
        self,
        caller: Caller,
        sandbox_id: str,
        wish: TransitionCause,
        wait: timedelta,
        change: Change = unchanged,
    ) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self._intents.want_back(caller.tenant_id, sandbox_id, wish, change=change)
            return require_on_its_way(await watch.until_settled(row, wait=wait))

    async def _wait(self, caller: Caller, sandbox_id: str, *, wait: timedelta) -> Sandbox:
        with self._waiting.watch(sandbox_id) as watch:
            row = await self.get(caller, sandbox_id)
            return await watch.until_settled(row, wait=wait)


def _cause(caller: Caller, reason: str) -> TransitionCause:
    return TransitionCause(cause=Cause.REQUEST, actor=caller.actor, reason=reason)
