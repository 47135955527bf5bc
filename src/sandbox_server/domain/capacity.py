"""How full a backend is, and who may take what is free there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.state import State
from sandbox_server.domain.wording import clock

OCCUPIES_SLOT = frozenset(
    {State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING, State.STOPPING}
)
"""In these a sandbox takes a place at its backend, and while it is paused if that keeps places."""


def occupies_slot(state: State, *, keeps_slots: bool) -> bool:
    """Tell whether a sandbox takes a place at its backend, which may keep those of paused ones."""
    return state in OCCUPIES_SLOT or (keeps_slots and state is State.PAUSED)


@dataclass(frozen=True, kw_only=True)
class AdmissionPath:
    """A way to a place: out of a backend's queue, or back from a pause there."""

    backend: str
    state: State
    keeps_slot: bool = False
    """Whether those who come back have kept their places, and only need to be let run."""


@dataclass(frozen=True, kw_only=True)
class BackendCapacity:
    """The places of a backend."""

    backend: str
    capacity: int
    running: int
    kept: Mapping[str, int]
    """How many of a tenant's are paused and have kept their places."""
    keeps_slots: bool = False
    """Whether its paused sandboxes do."""
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
        """Tell whether it takes those that wait in this state, as far as it has places.

        A drained backend has its own sandboxes back, and no new ones.
        """
        drained = self.drained and state is State.QUEUED
        return self.answers and self.busy_until is None and not drained

    def has_slot_for(self, state: State) -> bool:
        return self.free > 0 or (state is State.PAUSED and self.keeps_slots)

    def admission_paths(self) -> Iterator[AdmissionPath]:
        """List the ways that are open."""
        for state in (State.QUEUED, State.PAUSED):
            if self.admits(state) and self.has_slot_for(state):
                kept = state is State.PAUSED and self.keeps_slots
                yield AdmissionPath(backend=self.backend, state=state, keeps_slot=kept)

    def explain(self, state: State) -> str:
        """Say why somebody in that state waits for a place here."""
        name = self.backend
        if not self.answers:
            since = "" if self.silent_since is None else f" since {clock(self.silent_since)}"
            return f"Backend {name} does not answer{since}."
        if self.drained and state is State.QUEUED:
            return f"Backend {name} is drained."
        if self.busy_until is not None:
            return f"Backend {name} is busy; the next attempt is at {clock(self.busy_until)}."
        if self.has_slot_for(state):
            return f"A slot at {name} is about to be assigned."
        taken = f"All {self.capacity} slots at {name} are in use"
        if not self.paused:
            return f"{taken}."
        return f"{taken}: {self.running} running, {self.paused} paused that keep their memory."
