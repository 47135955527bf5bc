"""The next step for a sandbox, from its row and its state at the provider.

The provider's state comes first: a row that differs is corrected before any other step. Every step can be repeated: a
start with the same idempotency key, a pause of a paused and a kill of a missing sandbox succeed.
"""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_server.domain.errors import InvalidTransition
from sandbox_server.domain.state import ENDED, State, Target, may_follow, may_want


class ProviderState(StrEnum):
    """The state at the provider; a sandbox that was never admitted is absent."""

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
    """An act, the state committed before it, the state that it leads to, and the new target."""

    act: Act
    via: State
    to: State
    target: Target


def require_transition(current: State, wanted: State) -> None:
    """Raise `InvalidTransition` for a transition that the table lacks."""
    if not may_follow(current, wanted):
        raise InvalidTransition(current, wanted)


def require_target(current: State, target: Target) -> None:
    """Raise `InvalidTransition` for a target that a sandbox in this state cannot reach."""
    if not may_want(current, target):
        raise InvalidTransition(current, target)


def next_step(state: State, target: Target, provider_state: ProviderState) -> Step:
    """Decide on the next step towards the target."""
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
        # Resumed outside of this server: it is in use, and its timeout runs again.
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
        # Paused outside of this server; it stays paused. Otherwise a reboot of the provider would resume every sandbox
        # at once, and a deliberate pause would start to cost again. Use of the sandbox resumes it.
        return Step(Act.RECORD, state, State.PAUSED, Target.PAUSED)
    if target is Target.RUNNING and state is State.PAUSED:
        return Step(Act.ADMIT, state, State.RESUMING, target)
    if target is Target.RUNNING and state is State.RESUMING:
        return Step(Act.RESUME, state, State.RUNNING, target)
    if state is State.PAUSED:
        return Step(Act.NONE, state, state, target)
    return Step(Act.RECORD, state, State.PAUSED, target)
