"""States, targets and transitions of sandboxes.

                    admitted            it runs
         queued ───────────────► starting ─────► running ──────► pausing
           │  ▲     no room at      │  │         ▲  │ ▲             │
           │  └──── the provider ───┘  │         │  │ └─ not paused ─┤
           │                           │ paused  │  │                ▼
           │                           ├─────────┼──┼───────────► paused ◄─┐
           │                           │         │  │                │     │ it failed
           │ cancelled                 │         └──┼── resuming ◄───┘     │
           ▼                           ▼            ▼      └───────────────┘
        stopped ◄──────────────────  stopping  ◄──── from any of these, when it is to be gone

    failed: from any state but `stopping`, when the start is given up or the provider has lost it. Like `stopped` it is an end.

`running` and `paused` also follow each other directly: a provider can pause or resume a sandbox behind our back.
"""

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Target(StrEnum):
    """The requested state of a sandbox."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class OnTimeout(StrEnum):
    """The action at a sandbox's timeout."""

    PAUSE = "pause"
    DELETE = "delete"


ENDED = frozenset({State.STOPPED, State.FAILED})

_ANY_END = {State.STOPPING, State.FAILED}

NEXT: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.STARTING, State.STOPPED, *_ANY_END}),
    State.STARTING: frozenset({State.QUEUED, State.RUNNING, State.PAUSED, *_ANY_END}),
    State.RUNNING: frozenset({State.PAUSING, State.PAUSED, *_ANY_END}),
    State.PAUSING: frozenset({State.PAUSED, State.RUNNING, *_ANY_END}),
    State.PAUSED: frozenset({State.RESUMING, State.RUNNING, *_ANY_END}),
    State.RESUMING: frozenset({State.RUNNING, State.PAUSED, *_ANY_END}),
    State.STOPPING: frozenset({State.STOPPED}),
    State.STOPPED: frozenset(),
    State.FAILED: frozenset(),
}

_MAY_BECOME_WANTED: dict[State, frozenset[Target]] = {
    State.QUEUED: frozenset({Target.RUNNING, Target.GONE}),
    State.STOPPING: frozenset({Target.GONE}),
    State.STOPPED: frozenset({Target.GONE}),
    State.FAILED: frozenset({Target.GONE}),
}


def may_follow(current: State, wanted: State) -> bool:
    """Whether a row may change from one state to another, or stay in it."""
    return wanted is current or wanted in NEXT[current]


def may_want(current: State, target: Target) -> bool:
    """Whether a caller may request the target of a sandbox in this state; ended ones cannot return."""
    return target in _MAY_BECOME_WANTED.get(current, frozenset(Target))


def serves(state: State, target: Target) -> bool:
    """Whether a sandbox in this state has reached the target."""
    return state in _SERVING[target]


_SERVING = {
    Target.RUNNING: frozenset({State.RUNNING, *ENDED}),
    Target.PAUSED: frozenset({State.PAUSED, *ENDED}),
    Target.GONE: ENDED,
}
