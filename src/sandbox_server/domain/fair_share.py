"""Whose turn it is when places are free.

Priority comes first, then whose tenant has the fewest places, counting those that are given out here, then age. Who cannot
be given a place keeps nobody waiting who can: another backend may have room, another tenant may run more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A sandbox that waits for a place at one of some backends, the best first."""

    id: str
    tenant_id: str
    priority: int = 0
    queued_at: datetime
    backends: tuple[str, ...]
    has_place: bool = False
    """Whether it kept its place while it was paused, so that it only needs to be let run."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a tenant has, and how many more it may run."""

    places: int
    left: int


@dataclass(frozen=True)
class Turn:
    id: str
    backend: str


def take_turns(
    waiting: Iterable[Waiting], *, free: Mapping[str, int], shares: Mapping[str, Share]
) -> list[Turn]:
    """Give out places, in order, as far as there are free ones."""
    room = dict(free)
    lines = {id_: _Line(share) for id_, share in shares.items()}
    for one in sorted(waiting, key=_in_line, reverse=True):
        lines[one.tenant_id].waiting.append(one)
    heads: list[tuple[tuple[int, int, datetime, str], _Line]] = []
    for line in lines.values():
        line.push_head(heads)
    turns = []
    while heads:
        line = heappop(heads)[1]
        one = line.waiting.pop()
        backend = _find_place(one, room)
        if backend is not None:
            turns.append(Turn(one.id, backend))
            line.count(one)
            room[backend] -= not one.has_place
        line.push_head(heads)
    return turns


class _Line:
    """Those of one tenant, the next at the end."""

    def __init__(self, share: Share) -> None:
        self.waiting: list[Waiting] = []
        self._places = share.places
        self._left = share.left

    def count(self, admitted: Waiting) -> None:
        self._left -= 1
        self._places += not admitted.has_place

    def push_head(self, heads: list[tuple[tuple[int, int, datetime, str], "_Line"]]) -> None:
        if self.waiting and self._left > 0:
            one = self.waiting[-1]
            heappush(heads, ((-one.priority, self._places, one.queued_at, one.id), self))


def _in_line(one: Waiting) -> tuple[int, datetime, str]:
    return -one.priority, one.queued_at, one.id


def _find_place(one: Waiting, room: Mapping[str, int]) -> str | None:
    if one.has_place:
        return one.backends[0]
    return next((backend for backend in one.backends if room[backend] > 0), None)
