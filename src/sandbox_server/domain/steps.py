"""What comes next for a sandbox, from its row and what its provider says is true.

Truth comes first: a row that says otherwise is corrected before anything is done, and the next look goes on from there.
Every step may be repeated: starting by idempotency key, pausing what is paused and killing what is gone all succeed.
"""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_server.domain.errors import InvalidTransition
from sandbox_server.domain.state import ENDED, State, Target, may_follow, may_want


class ProviderState(StrEnum):
    """What the provider says of a sandbox; one that was never placed is absent."""

    RUNNING = "running"
    PAUSED = "paused"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Act(StrEnum):
    NONE = "none"
    ASK = "ask"
    ADMIT = "admit"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    KILL = "kill"
    RECORD = "record"


@dataclass(frozen=True)
class Step:
    """One act, the state that is committed before it, the one that it leads to, and what is wanted from then on."""

    act: Act
    via: State
    to: State
    target: Target


def require_transition(current: State, wanted: State) -> None:
    """Refuse what the table of transitions does not have."""
    if not may_follow(current, wanted):
        raise InvalidTransition(current, wanted)


def require_target(current: State, target: Target) -> None:
    """Refuse a caller's wish that a sandbox in this state cannot fulfil."""
    if not may_want(current, target):
        raise InvalidTransition(current, target)


def next_step(state: State, target: Target, provider_state: ProviderState) -> Step:
    """Say what to do next so that the sandbox becomes what is wanted."""
    if state in ENDED:
        return _clear_leftovers(state, target, provider_state)
    if provider_state is ProviderState.UNKNOWN:
        return Step(Act.ASK, state, state, target)
    if state is State.STOPPING or target is Target.GONE:
        return _end(state, provider_state)
    if provider_state is ProviderState.ABSENT:
        return _begin(state, target)
    if provider_state is ProviderState.RUNNING:
        return _from_running(state, target)
    return _from_paused(state, target)


def _clear_leftovers(state: State, target: Target, provider_state: ProviderState) -> Step:
    # A create whose answer was lost can finish after its row has ended.
    present = provider_state in {ProviderState.RUNNING, ProviderState.PAUSED}
    return Step(Act.KILL if present else Act.NONE, state, state, target)


def _end(state: State, provider_state: ProviderState) -> Step:
    if provider_state is not ProviderState.ABSENT:
        return Step(Act.KILL, State.STOPPING, State.STOPPED, Target.GONE)
    via = state if state is State.QUEUED else State.STOPPING
    return Step(Act.RECORD, via, State.STOPPED, Target.GONE)


def _begin(state: State, target: Target) -> Step:
    if state is State.QUEUED:
        return Step(Act.ADMIT, state, State.STARTING, target)
    if state is State.STARTING:
        return Step(Act.START, state, State.RUNNING, target)
    return Step(Act.RECORD, state, State.FAILED, Target.GONE)


def _from_running(state: State, target: Target) -> Step:
    if state is State.QUEUED:
        return Step(Act.RECORD, State.STARTING, State.RUNNING, target)
    if state is State.PAUSED:
        # Resumed behind our back: somebody works in it, and the row's time runs again.
        return Step(Act.RECORD, state, State.RUNNING, Target.RUNNING)
    if target is Target.PAUSED and state in {State.RUNNING, State.PAUSING}:
        return Step(Act.PAUSE, State.PAUSING, State.PAUSED, target)
    if state is State.RUNNING:
        return Step(Act.NONE, state, state, target)
    return Step(Act.RECORD, state, State.RUNNING, target)


def _from_paused(state: State, target: Target) -> Step:
    if state is State.QUEUED:
        return Step(Act.RECORD, State.STARTING, State.PAUSED, target)
    if state is State.RUNNING:
        # Paused behind our back. It stays so: after a reboot of the provider all would be resumed at once, and
        # what somebody paused on purpose would start to cost again. Whoever uses it wakes it.
        return Step(Act.RECORD, state, State.PAUSED, Target.PAUSED)
    if target is Target.RUNNING and state is State.PAUSED:
        return Step(Act.ADMIT, state, State.RESUMING, target)
    if target is Target.RUNNING and state is State.RESUMING:
        return Step(Act.RESUME, state, State.RUNNING, target)
    if state is State.PAUSED:
        return Step(Act.NONE, state, state, target)
    return Step(Act.RECORD, state, State.PAUSED, target)
