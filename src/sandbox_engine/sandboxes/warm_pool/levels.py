from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.warm_pool.attempts import Attempts


@dataclass
class Stock:
    """The ready sandboxes of one kind, and how many there should be.

    `model` is the record of the next one.
    """

    kind: str
    model: SandboxRecord
    attempts: Attempts
    ready: list[SandboxRecord]
    wanted: int = 0

    @property
    def lacks(self) -> bool:
        return len(self.ready) < self.wanted


def share_out(stocks: Iterable[Stock], *, each: int, memory_mb: int) -> None:
    """Settle how many of each kind are wanted; who comes first is served first, who fails last."""
    for stock in sorted(stocks, key=lambda stock: stock.attempts.failures > 0):
        size = stock.model.resources.memory_mb
        stock.wanted = min(each, memory_mb // size)
        memory_mb -= stock.wanted * size
