import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.computers.browsers import BROWSER_SESSION_PREFIX
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.errors import SandboxNotFound, Superseded
from sandbox_server.domain.events import SandboxEvent
from sandbox_server.domain.ids import PATTERN
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import require_transition
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    cause_of,
    deadlines_of,
    set_deadlines,
    state_event,
)

Change = Callable[[Deadlines, datetime], Deadlines]
Condition = Callable[[Sandbox, datetime], bool]

_WITHOUT_SLOT = ENDED | {State.QUEUED, State.PAUSED}


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A change of a row, and the event that describes it."""

    change: Change
    target: Target | None = None
    """The new target, if it changes."""
    cause: TransitionCause | None = None
    """The actor and reason, if not the row's own cause."""
    values: Mapping[str, Any] = field(default_factory=dict)
    only_if: Callable[[Sandbox], bool] = lambda _: True
    """Condition on the row as the preceding transitions of the commit left it."""


@dataclass(frozen=True)
class HoldBack:
    """Until when nothing is admitted at a backend that reported no room."""

    backend: str
    until: datetime


class Transitions:
    """Commits transitions of sandboxes: the only writer of `state` after admission.

    Each commit is fenced by the row's generation, which it increments.
    """

    def __init__(self, sessions: Sessions, changes: Changes | None = None) -> None:
        self._sessions = sessions
        self._changes = changes

    async def commit(
        self,
        seen: Sandbox,
        *transitions: Transition,
        condition: Condition = lambda _row, _now: True,
        hold_back: HoldBack | None = None,
        wake: bool = False,
    ) -> tuple[Sandbox, datetime]:
        """Commit the transitions together, if the row's generation is unchanged and `holds` is true.

        `wake` makes the sandbox's job due, for commits outside of that job.
        """
        async with self._sessions.begin() as session:
            if hold_back is not None:
                await BackendRepository(session).hold_back(hold_back.backend, until=hold_back.until)
            repository = SandboxRepository(session)
            row, now = await repository.lock(seen.id)
            if row.generation != seen.generation or not condition(row, now):
                raise Superseded(seen.id, generation=seen.generation, now=row.generation)
            backend, before = row.backend, row.state
            events: list[SandboxEvent] = []
            for transition in transitions:
                if transition.only_if(row):
                    events += _apply(row, transition, now)
            if row.state in _WITHOUT_SLOT and before is not row.state:
                await _offer_slot(session, row, backend, hold_back)
            if row.state in ENDED and re.match(PATTERN, row.template):
                await JobRepository(session).wake(kinds.SNAPSHOT, row.template)
            await _wake_jobs(session, row, wake=wake)
            by = self._changes.name if self._changes else ""
            if not events:
                await repository.announce(row.id, by=by)
            await EventRepository(session).append(row.tenant_id, *events, by=by)
        if self._changes:
            self._changes.publish(row)
        return row, now

    async def note_provider_id(self, seen: Sandbox, provider_id: str) -> bool:
        """Add the provider's id to a row that has changed since; False if the row has another sandbox."""
        async with self._sessions.begin() as session:
            try:
                row, _ = await SandboxRepository(session).lock(seen.id)
            except SandboxNotFound:
                return False
            is_its_own = row.backend == seen.backend and row.state is not State.QUEUED
            if not is_its_own or row.backend_sandbox_id not in {None, provider_id}:
                return False
            row.backend_sandbox_id = provider_id
            await JobRepository(session).due(kinds.SANDBOX, row.id)
            return True


def into(state: State) -> Change:
    """Enter a state without a change of deadlines."""
    return lambda row, _: replace(row, state=state)


def _apply(row: Sandbox, transition: Transition, now: datetime) -> Iterator[SandboxEvent]:
    before, had = row.state, deadlines_of(row)
    after = transition.change(had, now)
    require_transition(before, after.state)
    set_deadlines(row, after)
    row.generation += 1
    if before is State.PAUSING and waits_for_slot(after):
        row.queued_at = now
    for name, value in transition.values.items():
        setattr(row, name, value)
    cause = transition.cause or cause_of(row)
    if transition.target is not None:
        row.target = transition.target
        row.wish = cause.document()
    if after.state in ENDED:
        row.ended_at = now
        row.access_sealed = row.envs_sealed = None
    if after.state is not before:
        row.silent_since = None
    if after.state is not before or transition.cause is not None:
        row.state_reason = cause.reason
        yield state_event(row, cause, before=had)


async def _wake_jobs(session: AsyncSession, row: Sandbox, *, wake: bool) -> None:
    if row.state is State.RUNNING and row.has_services and row.services_digest is None:
        await JobRepository(session).due(kinds.SERVICES, row.id)
    if row.session_id is not None and row.session_id.startswith(BROWSER_SESSION_PREFIX):
        session_id = row.session_id.removeprefix(BROWSER_SESSION_PREFIX)
        await JobRepository(session).wake(kinds.BROWSER_SESSION, session_id)
    if row.state is State.RUNNING and row.desktop is not None:
        await JobRepository(session).due(kinds.DESKTOP, row.id)
    if wake:
        await JobRepository(session).due(kinds.SANDBOX, row.id)


async def _offer_slot(
    session: AsyncSession, row: Sandbox, backend: str | None, hold_back: HoldBack | None
) -> None:
    """Make admission due where a slot may be free now: for another sandbox, or elsewhere for this one."""
    busy = {} if hold_back is None else {hold_back.backend: hold_back.until}
    elsewhere = row.candidates if row.state is State.QUEUED else ()
    for name in sorted({*elsewhere, *filter(None, [backend])}):
        await JobRepository(session).due(kinds.ADMISSION, name, busy.get(name))
