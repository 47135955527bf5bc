"""The order in which queued sandboxes get free slots.

Priority comes first, then the tenant with the fewest slots, counting those given out here, then age. A sandbox that
cannot be admitted does not block others: another backend may have a free slot, another tenant may run more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush


@dataclass(frozen=True, kw_only=True)
class QueuedSandbox:
    """A sandbox that waits for a slot at one of some backends, in order of preference."""

    id: str
    tenant_id: str
    priority: int = 0
    queued_at: datetime
    backends: tuple[str, ...]
    keeps_slot: bool = False
    """Whether it kept its slot while it was paused, and needs no free one."""


@dataclass(frozen=True, kw_only=True)
class TenantShare:
    """The slots of a tenant, and how many more sandboxes it may run."""

    slots: int
    left: int


@dataclass(frozen=True)
class Allocation:
    id: str
    backend: str


def allocate(
    waiting: Iterable[QueuedSandbox], *, free: Mapping[str, int], shares: Mapping[str, TenantShare]
) -> list[Allocation]:
    """Allocate the free slots in order."""
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
    """The queued sandboxes of one tenant; the next one is last."""

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
