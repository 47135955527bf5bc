"""Events of sandboxes; those of tasks are in `tasks/events.py`.

    sandbox.queued  .starting  .running  .pausing  .paused  .resuming  .stopping  .stopped  .failed    a state was entered
    sandbox.deadline_changed                                     its timeout was extended or shortened
    sandbox.silent  sandbox.answering                            it runs and does not respond; it responds again

Each has a cause, an actor and a reason in words. None is named `error`: browsers use that name themselves.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from sandbox_server.domain.deadlines import Deadlines
from sandbox_server.domain.due import Why, idle_pause_at
from sandbox_server.domain.explanations import explain_change
from sandbox_server.domain.state import ENDED, State


class Cause(StrEnum):
    REQUEST = "request"
    TRAFFIC = "traffic"
    """The sandbox was used while it was paused."""
    ROOM = "room"
    """A slot was free, or was not."""
    QUEUE_DEADLINE = "queue-deadline"
    EXPIRY = "expiry"
    IDLE = "idle"
    RETENTION = "retention"
    LONGEST_RUN = "longest-run"
    PROVIDER = "provider"
    """The provider did it, or failed to do it."""
    SHUTDOWN = "shutdown"
    """The server that runs the engine is stopping."""
    RECOVERY = "recovery"
    """A server finished a step that another one had begun."""
    TASK = "task"
    """The next step of a task."""
    FORGE = "forge"
    """A webhook of a forge, or what the forge answered."""


CAUSES: dict[Why, Cause] = {
    Why.UNSETTLED: Cause.RECOVERY,
    Why.QUEUE_DEADLINE: Cause.QUEUE_DEADLINE,
    Why.EXPIRY: Cause.EXPIRY,
    Why.IDLE: Cause.IDLE,
    Why.RETENTION: Cause.RETENTION,
    Why.LONGEST_RUN: Cause.LONGEST_RUN,
    Why.PROVIDER_TIMEOUT: Cause.PROVIDER,
}


class Actor(BaseModel):
    """The actor of an event; keys are named by id."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["key", "visitor", "server", "provider"]
    id: str | None = None


SERVER = Actor(kind="server")
PROVIDER = Actor(kind="provider")


class LoggedEvent(BaseModel):
    """An event of a tenant's log."""

    model_config = ConfigDict(frozen=True)

    cause: Cause
    actor: Actor
    reason: Annotated[str, Field(min_length=1)]


class SandboxEvent(LoggedEvent):
    sandbox_id: str


class Leaving(SandboxEvent):
    """The sandbox stops running or ends; carries the deadlines that it had, one of which may be the reason."""

    queue_expires_at: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    timeout_s: float | None = None
    expires_at: AwareDatetime | None = None
    last_activity_at: AwareDatetime | None = None
    idle_timeout_s: float | None = None
    awake_until: AwareDatetime | None = None
    idle_pause_at: AwareDatetime | None = None
    retain_until: AwareDatetime | None = None


class Queued(SandboxEvent):
    type: Literal["sandbox.queued"] = "sandbox.queued"
    queue_expires_at: AwareDatetime | None


class Starting(SandboxEvent):
    type: Literal["sandbox.starting"] = "sandbox.starting"


class Running(SandboxEvent):
    type: Literal["sandbox.running"] = "sandbox.running"
    expires_at: AwareDatetime
    idle_pause_at: AwareDatetime | None


class Pausing(Leaving):
    type: Literal["sandbox.pausing"] = "sandbox.pausing"


class Paused(SandboxEvent):
    type: Literal["sandbox.paused"] = "sandbox.paused"
    remaining_s: float
    retain_until: AwareDatetime


class Resuming(SandboxEvent):
    type: Literal["sandbox.resuming"] = "sandbox.resuming"


class Stopping(Leaving):
    type: Literal["sandbox.stopping"] = "sandbox.stopping"


class Stopped(Leaving):
    type: Literal["sandbox.stopped"] = "sandbox.stopped"


class Failed(Leaving):
    type: Literal["sandbox.failed"] = "sandbox.failed"


class DeadlineChanged(SandboxEvent):
    type: Literal["sandbox.deadline_changed"] = "sandbox.deadline_changed"
    expires_at: AwareDatetime | None
    remaining_s: float | None


class Silent(SandboxEvent):
    """The sandbox runs and does not respond."""

    type: Literal["sandbox.silent"] = "sandbox.silent"
    last_answer_at: AwareDatetime | None


class Answering(SandboxEvent):
    """The sandbox responds again."""

    type: Literal["sandbox.answering"] = "sandbox.answering"


Entered = Queued | Starting | Running | Pausing | Paused | Resuming | Stopping | Stopped | Failed
Event = Annotated[Entered | DeadlineChanged | Silent | Answering, Field(discriminator="type")]

_LEAVING = frozenset({State.PAUSING, *ENDED, State.STOPPING})

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_ENTERED: TypeAdapter[Entered] = TypeAdapter(Annotated[Entered, Field(discriminator="type")])


def read_event(data: dict[str, Any]) -> Event:
    """Read a stored event; fields of newer servers are ignored."""
    return _EVENT.validate_python(data)


def entered(
    row: Deadlines,
    *,
    sandbox_id: str,
    cause: Cause,
    actor: Actor,
    reason: str,
    before: Deadlines | None = None,
) -> Entered:
    """Describe that a sandbox entered a state, with its deadlines; without any, those that it had `before`."""
    had = row if before is None else before
    return _ENTERED.validate_python(
        {
            "type": f"sandbox.{row.state}",
            "sandbox_id": sandbox_id,
            "cause": cause,
            "actor": actor,
            "reason": reason,
            **_deadlines(had if row.state in _LEAVING else row),
        }
    )


def deadline_changed(
    before: Deadlines, after: Deadlines, *, sandbox_id: str, actor: Actor
) -> DeadlineChanged | None:
    """Describe a change of the timeout, if there is one."""
    reason = explain_change(before, after)
    if reason is None:
        return None
    return DeadlineChanged(
        sandbox_id=sandbox_id,
        cause=Cause.REQUEST,
        actor=actor,
        reason=reason,
        expires_at=after.expires_at,
        remaining_s=_seconds(after.remaining),
    )


def _deadlines(row: Deadlines) -> dict[str, Any]:
    return {
        "queue_expires_at": row.queue_expires_at,
        "started_at": row.started_at,
        "timeout_s": _seconds(row.timeout),
        "expires_at": row.expires_at,
        "last_activity_at": row.last_activity_at,
        "idle_timeout_s": _seconds(row.idle_timeout),
        "awake_until": row.awake_until,
        "idle_pause_at": idle_pause_at(row),
        "remaining_s": _seconds(row.remaining),
        "retain_until": row.retain_until,
    }


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
