from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox_engine.records import SandboxRecord
from sandbox_engine.reserve.attempts import Attempts


@dataclass
class Shelf:
    """The ready sandboxes of one kind, and how many there should be.

    `model` is the record of the next one.
    """

    kind: str
    model: SandboxRecord
    attempts: Attempts
    ready: list[SandboxRecord] = field(default_factory=list)
    wanted: int = 0

    @property
    def surplus(self) -> list[SandboxRecord]:
        return self.ready[self.wanted :]

    @property
    def is_to_be_filled(self) -> bool:
        return len(self.ready) < self.wanted and self.attempts.may_try


def share_out(shelves: Iterable[Shelf], *, each: int, memory_mb: int) -> None:
    """Settle how many of each kind are wanted; who comes first is served first, who fails last."""
    for shelf in sorted(shelves, key=lambda shelf: shelf.attempts.failures > 0):
        size = shelf.model.resources.memory_mb
        shelf.wanted = min(each, memory_mb // size)
        memory_mb -= shelf.wanted * size
