"""Tenants, backends and sandboxes as rows, for what is decided about them without a provider."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from sandbox_server.db.models import Backend, Job, Sandbox, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.deadlines import Deadlines, admit, pause, queue, start, want_back
from sandbox_server.domain.events import Actor, Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.sandboxes.repositories.sandboxes import set_deadlines

HOUR = timedelta(hours=1)
KEY = Actor(kind="key", id="k")
ASKED = TransitionCause(cause=Cause.REQUEST, actor=KEY, reason="A caller asked for it.")


def now() -> datetime:
    return datetime.now(UTC)


async def add(sessions: Sessions, *rows: Any) -> None:
    """Insert rows; those that others refer to first."""
    async with sessions.begin() as session:
        for row in rows:
            session.add(row)
            if not isinstance(row, Sandbox):
                await session.flush()


def tenant(id_: str = "t", *, max_running: int = 100, max_queued: int = 100) -> Tenant:
    return Tenant(id=id_, name=id_.upper(), max_running=max_running, max_queued=max_queued)


def backend(name: str = "local", *, capacity: int = 10, **columns: Any) -> Backend:
    return Backend(**{"name": name, "capacity": capacity, "state": "up", **columns})


def sandbox(state: State = State.QUEUED, **columns: Any) -> Sandbox:
    """Make a sandbox as it is in that state when its life so far was an ordinary one."""
    at = columns.pop("since", now())
    candidates = columns.pop("candidates", ["local"])
    waits_again = columns.pop("waits_again", False)
    row = Sandbox(
        **{
            "id": new_id(),
            "tenant_id": "t",
            "template": "base",
            "candidates": candidates,
            "backend": None if state is State.QUEUED else candidates[0],
            "queued_at": at,
            "wish": ASKED.document(),
            **columns,
        }
    )
    given = {name: columns[name] for name in columns if name in Deadlines.__dataclass_fields__}
    set_deadlines(row, replace(_life(state, at, waits_again=waits_again), **given))
    return row


def _life(state: State, at: datetime, *, waits_again: bool) -> Deadlines:
    queued = queue(
        Deadlines(state=State.QUEUED, target=Target.RUNNING, timeout=HOUR), at, wait=None
    )
    running = start(admit(queued, at), at)
    paused = replace(pause(running, at), target=Target.PAUSED)
    return {
        State.QUEUED: queued,
        State.STARTING: admit(queued, at),
        State.PAUSED: want_back(paused, at) if waits_again else paused,
        State.RESUMING: replace(want_back(paused, at), state=State.RESUMING),
    }.get(state, replace(running, state=state))


async def read(sessions: Sessions, *rows: Sandbox) -> list[Sandbox]:
    async with sessions() as session:
        return [await session.get_one(Sandbox, row.id) for row in rows]


async def states(sessions: Sessions, *rows: Sandbox) -> list[State]:
    return [row.state for row in await read(sessions, *rows)]


async def due_subjects(sessions: Sessions, kind: str) -> Sequence[str]:
    async with sessions() as session:
        found = await session.scalars(
            select(Job.subject).where(Job.kind == kind).order_by(Job.subject)
        )
        return found.all()
