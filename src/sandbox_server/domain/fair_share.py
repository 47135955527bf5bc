"""Whose turn it is when places are free.

Priority comes first, then whose tenant has the fewest places, counting those that are given out here, then age. Who cannot
be given a place keeps nobody waiting who can: another backend may have room, another tenant may run more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush


@dataclass(frozen=True, kw_only=True)
class QueuedSandbox:
    """A sandbox that waits for a place at one of some backends, the best first."""

    id: str
    tenant_id: str
    priority: int = 0
    queued_at: datetime
    backends: tuple[str, ...]
    keeps_slot: bool = False
    """Whether it kept its place while it was paused, so that it only needs to be let run."""


@dataclass(frozen=True, kw_only=True)
class TenantShare:
    """What a tenant has, and how many more it may run."""

    slots: int
    left: int


@dataclass(frozen=True)
class Allocation:
    id: str
    backend: str


def allocate(
    waiting: Iterable[QueuedSandbox], *, free: Mapping[str, int], shares: Mapping[str, TenantShare]
) -> list[Allocation]:
    """Give out places, in order, as far as there are free ones."""
    free_slots = dict(free)
    queues = {id_: _TenantQueue(share) for id_, share in shares.items()}
    for one in sorted(waiting, key=_order, reverse=True):
        queues[one.tenant_id].waiting.append(one)
    heads: list[tuple[tuple[int, int, datetime, str], _TenantQueue]] = []
    for queue in queues.values():
        queue.push_head(heads)
    allocations = []
    while heads:
        queue = heappop(heads)[1]
        one = queue.waiting.pop()
        backend = _find_slot(one, free_slots)
        if backend is not None:
            allocations.append(Allocation(one.id, backend))
            queue.count(one)
            free_slots[backend] -= not one.keeps_slot
        queue.push_head(heads)
    return allocations


class _TenantQueue:
    """Those of one tenant, the next at the end."""

    def __init__(self, share: TenantShare) -> None:
        self.waiting: list[QueuedSandbox] = []
        self._slots = share.slots
        self._left = share.left

    def count(self, admitted: QueuedSandbox) -> None:
        self._left -= 1
        self._slots += not admitted.keeps_slot

    def push_head(self, heads: list[tuple[tuple[int, int, datetime, str], "_TenantQueue"]]) -> None:
        if self.waiting and self._left > 0:
            one = self.waiting[-1]
            heappush(heads, ((-one.priority, self._slots, one.queued_at, one.id), self))


def _order(one: QueuedSandbox) -> tuple[int, datetime, str]:
    return -one.priority, one.queued_at, one.id


def _find_slot(one: QueuedSandbox, free_slots: Mapping[str, int]) -> str | None:
    if one.keeps_slot:
        return one.backends[0]
    return next((backend for backend in one.backends if free_slots[backend] > 0), None)
