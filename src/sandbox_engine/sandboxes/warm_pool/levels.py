from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.warm_pool.attempts import StartAttempts


@dataclass
class PoolLevel:
    """Ready sandboxes of one kind and their target number.

    `model` is the record for the next one.
    """

    kind: str
    model: SandboxRecord
    attempts: StartAttempts
    ready: list[SandboxRecord]
    wanted: int = 0

    @property
    def is_below_target(self) -> bool:
        return len(self.ready) < self.wanted


def share_out(levels: Iterable[PoolLevel], *, each: int, memory_mb: int) -> None:
    """Share the memory among kinds in order of demand; failing kinds come last."""
    for level in sorted(levels, key=lambda level: level.attempts.failures > 0):
        size = level.model.resources.memory_mb
        level.wanted = min(each, memory_mb // size)
        memory_mb -= level.wanted * size
