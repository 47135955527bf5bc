"""How full a backend is, and who may take what is free there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.state import State
from sandbox_server.domain.wording import clock

WITH_PLACE = frozenset(
    {State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING, State.STOPPING}
)
"""In these a sandbox takes a place at its backend, and while it is paused if that keeps places."""


def takes_place(state: State, *, keeps_places: bool) -> bool:
    """Tell whether a sandbox takes a place at its backend, which may keep those of paused ones."""
    return state in WITH_PLACE or (keeps_places and state is State.PAUSED)


@dataclass(frozen=True, kw_only=True)
class Door:
    """A way to a place: out of a backend's queue, or back from a pause there."""

    backend: str
    state: State
    has_place: bool = False
    """Whether those who come back have kept their places, and only need to be let run."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """The places of a backend."""

    backend: str
    capacity: int
    running: int
    kept: Mapping[str, int]
    """How many of a tenant's are paused and have kept their places."""
    keeps_places: bool = False
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

    def lets_in(self, state: State) -> bool:
        """Tell whether it takes those that wait in this state, as far as it has places.

        A drained backend has its own sandboxes back, and no new ones.
        """
        drained = self.drained and state is State.QUEUED
        return self.answers and self.busy_until is None and not drained

    def has_place_for(self, state: State) -> bool:
        return self.free > 0 or (state is State.PAUSED and self.keeps_places)

    def doors(self) -> Iterator[Door]:
        """List the ways that are open."""
        for state in (State.QUEUED, State.PAUSED):
            if self.lets_in(state) and self.has_place_for(state):
                kept = state is State.PAUSED and self.keeps_places
                yield Door(backend=self.backend, state=state, has_place=kept)

    def explain(self, state: State) -> str:
        """Say why somebody in that state waits for a place here."""
        name = self.backend
        if not self.answers:
            since = "" if self.silent_since is None else f" since {clock(self.silent_since)}"
            return f"Backend {name} does not answer{since}."
        if self.drained and state is State.QUEUED:
            return f"Backend {name} is drained."
        if self.busy_until is not None:
            return f"Backend {name} has said that it is busy; it is asked again at {clock(self.busy_until)}."
        if self.has_place_for(state):
            return f"A place at {name} is about to be given out."
        taken = f"All {self.capacity} places at {name} are taken"
        if not self.paused:
            return f"{taken}."
        return f"{taken}: {self.running} running, {self.paused} paused whose memory is in use."
