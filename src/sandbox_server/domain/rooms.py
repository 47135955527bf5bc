"""How full a backend is, and who may take what is free there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.domain.state import State


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
    keeps_places: bool
    """Whether its paused sandboxes do."""
    answers: bool
    silent_since: datetime | None = None
    drained: bool
    busy_until: datetime | None = None

    @property
    def paused(self) -> int:
        return sum(self.kept.values())

    @property
    def free(self) -> int:
        return self.capacity - self.running - self.paused

    def doors(self) -> Iterator[Door]:
        """List the ways that are open; a drained backend has its own sandboxes back, and no new ones."""
        if not self.answers or self.busy_until is not None:
            return
        if self.free > 0 and not self.drained:
            yield Door(backend=self.backend, state=State.QUEUED)
        if self.free > 0 or self.keeps_places:
            yield Door(backend=self.backend, state=State.PAUSED, has_place=self.keeps_places)
