from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.deadlines import Deadlines, want_back
from sandbox_server.domain.due import next_due
from sandbox_server.domain.errors import InvalidTransition
from sandbox_server.domain.events import Actor, deadline_changed
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import require_target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.admission import Admission, require_queue_slot
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.inline_jobs import InlineJobs
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    deadlines_of,
    set_deadlines,
)

Change = Callable[[Deadlines, datetime], Deadlines]

# Where services read what they are told, or soon will.
_AWAKE = frozenset({State.STARTING, State.RUNNING, State.RESUMING})


def unchanged(row: Deadlines, _now: datetime) -> Deadlines:
    return row


class Targets:
    """Writes down what is wanted of a sandbox, and begins to see to it.

    An intent and the job that sees to it are one transaction. Whoever holds the job already is told to look again.
    """

    def __init__(
        self,
        sessions: Sessions,
        own_work: InlineJobs,
        admission: Admission,
        backends: Backends,
        changes: Changes,
    ) -> None:
        self._sessions = sessions
        self._own_work = own_work
        self._admission = admission
        self._backends = backends
        self._changes = changes

    async def want(
        self, tenant_id: str, sandbox_id: str, target: Target, wish: TransitionCause
    ) -> Sandbox:
        """Have a sandbox paused, or gone; what is so already, or wanted so, stays as it is."""
        async with self._sessions.begin() as session:
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, target)
            if row.target is not target:
                set_target(row, target, wish)
            job = await self._own_work.take(session, row)
        self._own_work.begin(row, now, job)
        return row

    async def want_back(
        self, tenant_id: str, sandbox_id: str, wish: TransitionCause, *, change: Change = unchanged
    ) -> Sandbox:
        """Have a sandbox running, its deadlines changed; a paused one takes a place or waits for one."""
        backends = await self._find_backends_to_hold(tenant_id, sandbox_id)
        async with self._sessions.begin() as session:
            # Before the sandbox, as everybody does.
            rooms = await self._admission.hold(session, backends) if backends else []
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, Target.RUNNING)
            before = after = deadlines_of(row)
            if is_new := row.target is not Target.RUNNING:
                set_target(row, Target.RUNNING, wish)
                row.queued_at = now
                after = want_back(before, now, rules=self._backends.rules(row.backend))
            set_deadlines(row, after := change(after, now))
            admitted = False
            if is_new and row.state is State.PAUSED:
                admitted = await self._seek_place(session, row, rooms)
            job = await self._own_work.take(session, row)
            if job is None:
                await self._look_earlier(session, row, before, after, now)
            await _tell(session, row, before, after, actor=wish.actor)
        if admitted:
            self._changes.tell(row)
        self._own_work.begin(row, now, job, admitted=admitted)
        return row

    async def change(
        self, tenant_id: str, sandbox_id: str, change: Callable[[Sandbox], Change], *, actor: Actor
    ) -> Sandbox:
        """Change what of a sandbox's row is its owner's, and its deadlines."""
        async with self._sessions.begin() as session:
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, Target.RUNNING)
            before = deadlines_of(row)
            after = change(row)(deadlines_of(row), now)
            set_deadlines(row, after)
            await self._look_earlier(session, row, before, after, now)
            if row.has_services and row.services_digest is None and row.state in _AWAKE:
                await JobRepository(session).due(SERVICES, row.id)
            await _tell(session, row, before, after, actor=actor)
        return row

    async def _find_backends_to_hold(self, tenant_id: str, sandbox_id: str) -> list[str]:
        async with without_transaction(self._sessions) as session:
            row = await SandboxRepository(session).get(sandbox_id, tenant_id=tenant_id)
        return [row.backend] if row.state is State.PAUSED and row.backend else []

    async def _seek_place(
        self, session: AsyncSession, row: Sandbox, held: Sequence[BackendCapacity]
    ) -> bool:
        """Have a paused sandbox let in; tells whether it was, and not only put in the queue."""
        if row.backend not in {room.backend for room in held}:  # it was paused only just now
            await JobRepository(session).due(ADMISSION, str(row.backend))
            return False
        await self._admission.admit_own(session, row.id, held, by=self._changes.name)
        if row.state is State.RESUMING:
            return True
        await require_queue_slot(session, row.tenant_id)
        return False

    async def _look_earlier(
        self,
        session: AsyncSession,
        row: Sandbox,
        before: Deadlines,
        after: Deadlines,
        now: datetime,
    ) -> None:
        """Have the sandbox looked at earlier if something is due earlier; what is due later is found then."""
        rules = self._backends.rules(row.backend)
        was, is_ = next_due(before, now, rules=rules), next_due(after, now, rules=rules)
        if is_ is not None and (was is None or is_.at < was.at):
            await JobRepository(session).due(SANDBOX, row.id, is_.at)


def _require_wish(row: Sandbox, target: Target) -> None:
    if row.target is Target.GONE and target is not Target.GONE:
        raise InvalidTransition(row.state if row.state in ENDED else State.STOPPING, target)
    require_target(row.state, target)


def set_target(row: Sandbox, target: Target, wish: TransitionCause) -> None:
    """Write into a row that is held what is wanted of it; its job is to be due."""
    row.target, row.wish = target, wish.document()
    row.wanted += 1


async def _tell(
    session: AsyncSession, row: Sandbox, before: Deadlines, after: Deadlines, *, actor: Actor
) -> None:
    event = deadline_changed(before, after, sandbox_id=row.id, actor=actor)
    if event is not None:
        await EventRepository(session).append(row.tenant_id, event)
