import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.errors import SandboxNotFound, Superseded
from sandbox_server.domain.events import Cause, SandboxEvent, entered
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
    deadlines_of,
    set_deadlines,
)

Change = Callable[[Deadlines, datetime], Deadlines]
Condition = Callable[[Sandbox, datetime], bool]

_FOUND = TransitionCause(cause=Cause.RECOVERY, reason="A server went on with what it found.")
_WITHOUT_SLOT = ENDED | {State.QUEUED, State.PAUSED}


@dataclass(frozen=True, kw_only=True)
class Transition:
    """What becomes of a row, and what those who follow it are told."""

    change: Change
    target: Target | None = None
    """What is wanted from then on, if that is to be another than before."""
    cause: TransitionCause | None = None
    """Who did it and why, where that is not what the row's wish says."""
    values: Mapping[str, Any] = field(default_factory=dict)
    only_if: Callable[[Sandbox], bool] = lambda _: True
    """Whether it happens to the row as those before it left it."""


@dataclass(frozen=True)
class HoldBack:
    """Until when nobody is let in at a backend, which has said that it has no room."""

    backend: str
    until: datetime


class Transitions:
    """Commits what has happened to sandboxes, to the rows that still are what they were."""

    def __init__(self, sessions: Sessions, changes: Changes | None = None) -> None:
        self._sessions = sessions
        self._changes = changes

    async def commit(
        self,
        seen: Sandbox,
        *transitions: Transition,
        holds: Condition = lambda _row, _now: True,
        hold_back: HoldBack | None = None,
        wake: bool = False,
    ) -> tuple[Sandbox, datetime]:
        """Commit the transitions together, if the row is as it was seen and `holds` is true of it.

        `wake` has its job look at it, where the commit is not that job's own.
        """
        async with self._sessions.begin() as session:
            if hold_back is not None:
                await BackendRepository(session).hold_back(hold_back.backend, until=hold_back.until)
            repository = SandboxRepository(session)
            row, now = await repository.lock(seen.id)
            if row.generation != seen.generation or not holds(row, now):
                raise Superseded(seen.id, generation=seen.generation, now=row.generation)
            backend, before = row.backend, row.state
            events: list[SandboxEvent] = []
            for transition in transitions:
                if transition.only_if(row):
                    events += _carry_over(row, transition, now)
            if row.state in _WITHOUT_SLOT and before is not row.state:
                await _offer_slot(session, row, backend, hold_back)
            if row.state in ENDED and re.match(PATTERN, row.template):
                await JobRepository(session).wake(kinds.SNAPSHOT, row.template)
            await _have_seen_to(session, row, wake=wake)
            by = self._changes.name if self._changes else ""
            if not events:
                await repository.announce(row.id, by=by)
            await EventRepository(session).append(row.tenant_id, *events, by=by)
        if self._changes:
            self._changes.tell(row)
        return row, now

    async def note_provider_id(self, seen: Sandbox, provider_id: str) -> bool:
        """Let a row that has gone on know of a sandbox that is its own, unless it has another one."""
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
    """Enter a state that changes no deadline."""
    return lambda row, _: replace(row, state=state)


def cause_of(row: Sandbox) -> TransitionCause:
    """Say who wants what is being done to a sandbox; of a row that nobody wished for, a server."""
    return TransitionCause.of(row.wish) if row.wish else _FOUND


def _carry_over(row: Sandbox, transition: Transition, now: datetime) -> Iterator[SandboxEvent]:
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
        yield entered(
            deadlines_of(row),
            sandbox_id=row.id,
            cause=cause.cause,
            actor=cause.actor,
            reason=cause.reason,
            before=had,
        )


async def _have_seen_to(session: AsyncSession, row: Sandbox, *, wake: bool) -> None:
    if row.state is State.RUNNING and row.has_services and row.services_digest is None:
        await JobRepository(session).due(kinds.SERVICES, row.id)
    if wake:
        await JobRepository(session).due(kinds.SANDBOX, row.id)


async def _offer_slot(
    session: AsyncSession, row: Sandbox, backend: str | None, hold_back: HoldBack | None
) -> None:
    """Have somebody let in where there may be room now: for another, or elsewhere for this one."""
    busy = {} if hold_back is None else {hold_back.backend: hold_back.until}
    elsewhere = row.candidates if row.state is State.QUEUED else ()
    for name in sorted({*elsewhere, *filter(None, [backend])}):
        await JobRepository(session).due(kinds.ADMISSION, name, busy.get(name))
