"""Transitions that follow from an answer of the provider."""

from dataclasses import replace
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain import deadlines
from sandbox_server.domain.deadlines import Deadlines, Rules
from sandbox_server.domain.errors import BackendError, BackendRefused
from sandbox_server.domain.events import PROVIDER, Cause
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.sandboxes.repositories.sandboxes import cause_of
from sandbox_server.sandboxes.transitions import Change, Transition, into

BUSY_FOR = timedelta(seconds=5)
"""How long a busy provider gets no request, unless it says how long."""

_NOT_EXTENDED = "The provider's timeout was not extended and will be retried: "


def is_refresh(row: Sandbox) -> bool:
    """Whether it is paused and resumed only because its provider limits the length of a run."""
    return row.target is Target.RUNNING and cause_of(row).cause is Cause.LONGEST_RUN


def runs(row: Sandbox, *, since: datetime, rules: Rules) -> Change:
    if row.state is State.STARTING:
        return lambda row, now: deadlines.start(row, now, since=since, rules=rules)
    if is_refresh(row):
        return lambda row, now: deadlines.refresh(row, now, rules=rules)
    return lambda row, now: deadlines.resume(row, now, since=since, rules=rules)


def becomes(state: State, *, rules: Rules) -> Change:
    """Enter a state that needs nothing from the provider's answer."""
    if state in ENDED:
        return lambda row, _: deadlines.end(row, state)
    if state is State.PAUSED:
        return lambda row, now: deadlines.pause(row, now, rules=rules)
    return into(state)


KEEPS_SLOT = Transition(change=into(State.RESUMING), only_if=is_refresh)
"""After a pause that was only for the provider's maximum run: the sandbox resumes in its slot."""


def not_started(error: BackendError) -> Transition:
    return never_started(str(error), is_refusal=isinstance(error, BackendRefused))


def never_started(reason: str, *, is_refusal: bool = False) -> Transition:
    return Transition(
        change=lambda row, _: deadlines.end(row, State.FAILED),
        target=Target.GONE,
        cause=by_provider(f"Start failed: {reason}", is_refusal=is_refusal),
    )


def not_let_in(error: BackendError) -> Transition:
    return Transition(
        change=lambda row, _: deadlines.requeue(row),
        cause=by_provider(f"Queued again: {error}"),
        values={"backend": None, "tried_at": None},
    )


def may_wait(row: Sandbox, _: datetime) -> bool:
    """Whether it may return to the queue, which only takes sandboxes with the target `running`."""
    return row.state is not State.STARTING or row.target is not Target.PAUSED


def not_paused(error: BackendError) -> Transition:
    return Transition(
        change=lambda row, _: deadlines.fail_pause(row),
        cause=by_provider(f"Pause failed and will be retried: {error}"),
    )


def not_resumed(error: BackendError, *, rules: Rules) -> Transition:
    return Transition(
        change=lambda row, now: deadlines.pause(row, now, rules=rules),
        target=Target.PAUSED,
        cause=by_provider(f"Resume failed; the sandbox stays paused: {error}"),
    )


def not_let_back_in(error: BackendError, *, rules: Rules) -> Transition:
    def pause(row: Deadlines, now: datetime) -> Deadlines:
        waits_until = row.queue_expires_at
        return replace(deadlines.pause(row, now, rules=rules), queue_expires_at=waits_until)

    return Transition(change=pause, cause=by_provider(f"Queued again: {error}"))


def not_deleted(error: BackendError) -> TransitionCause:
    return by_provider(f"Deletion failed and will be retried: {error}")


def not_extended(error: BackendError) -> TransitionCause:
    return by_provider(f"{_NOT_EXTENDED}{error}")


def is_not_extended(row: Sandbox) -> bool:
    return (row.state_reason or "").startswith(_NOT_EXTENDED)


def by_provider(reason: str, *, is_refusal: bool = False) -> TransitionCause:
    return TransitionCause(
        cause=Cause.PROVIDER, actor=PROVIDER, reason=reason, is_refusal=is_refusal
    )


def by_provider_alone(row: Sandbox, to: State) -> TransitionCause | None:
    """Describe what the provider did without a request, if that led to this state."""
    match row.state, to:
        case _, State.FAILED:
            return by_provider(f"Lost: provider {row.backend!r} no longer has the sandbox.")
        case ((State.RUNNING | State.STARTING), State.PAUSED):
            return by_provider(f"Paused by provider {row.backend!r}, not by this server.")
        case State.PAUSED, State.RUNNING:
            return by_provider(f"Resumed at provider {row.backend!r}, not by this server.")
    return None
