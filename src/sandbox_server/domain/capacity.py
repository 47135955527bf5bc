"""Slots of a backend, and which sandboxes may use the free ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.explanations import format_instant
from sandbox_server.domain.state import State

OCCUPIES_SLOT = frozenset(
    {State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING, State.STOPPING}
)
"""States that occupy a slot; at some backends `paused` does so too."""


def occupies_slot(state: State, *, keeps_slots: bool) -> bool:
    """Whether a sandbox occupies a slot; `keeps_slots`: paused ones do at its backend."""
    return state in OCCUPIES_SLOT or (keeps_slots and state is State.PAUSED)


@dataclass(frozen=True, kw_only=True)
class AdmissionPath:
    """A way to a slot: a start out of the queue, or a resume."""

    backend: str
    state: State
    keeps_slot: bool = False
    """Whether paused sandboxes keep their slots, so that a resume needs no free one."""


@dataclass(frozen=True, kw_only=True)
class BackendCapacity:
    """The slots of a backend and their use."""

    backend: str
    capacity: int
    running: int
    kept: Mapping[str, int]
    """Paused sandboxes that keep their slots, by tenant."""
    keeps_slots: bool = False
    """Whether paused sandboxes keep their slots at this backend."""
    answers: bool = True
    silent_since: datetime | None = None
    drained: bool = False
    busy_until: datetime | None = None

    @property
    def paused(self) -> int:
        return sum(self.kept.values())

    @property
    def free(self) -> int:
        return self.capacity - self.running - self.paused

    def admits(self, state: State) -> bool:
        """Whether the backend admits sandboxes in this state, given a slot.

        A drained backend resumes its own sandboxes, and starts no new ones.
        """
        drained = self.drained and state is State.QUEUED
        return self.answers and self.busy_until is None and not drained

    def has_slot_for(self, state: State) -> bool:
        return self.free > 0 or (state is State.PAUSED and self.keeps_slots)

    def admission_paths(self) -> Iterator[AdmissionPath]:
        """List the paths that are open now."""
        for state in (State.QUEUED, State.PAUSED):
            if self.admits(state) and self.has_slot_for(state):
                kept = state is State.PAUSED and self.keeps_slots
                yield AdmissionPath(backend=self.backend, state=state, keeps_slot=kept)

    def explain(self, state: State) -> str:
        """Explain why a sandbox in this state waits for a slot here."""
        name = self.backend
        if not self.answers:
            since = (
                "" if self.silent_since is None else f" since {format_instant(self.silent_since)}"
            )
            return f"Backend {name} does not answer{since}."
        if self.drained and state is State.QUEUED:
            return f"Backend {name} is drained."
        if self.busy_until is not None:
            return (
                f"Backend {name} is busy; the next attempt is at {format_instant(self.busy_until)}."
            )
        if self.has_slot_for(state):
            return f"A slot at {name} is about to be assigned."
        taken = f"All {self.capacity} slots at {name} are in use"
        if not self.paused:
            return f"{taken}."
        return f"{taken}: {self.running} running, {self.paused} paused that keep their memory."
