"""Crashes of the worker of tasks: its handler is cancelled right after one of its commits."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session

from sandbox_server import structured_logging

_LONGEST_STEP = 5


@dataclass
class Crashes:
    """The first task crashes after its first commit, the second after its second, and so on."""

    most: int
    commits: Counter[str] = field(default_factory=Counter)
    crashed: dict[str, int] = field(default_factory=dict)
    """Tasks by id, with the commit after which they crashed."""
    _order: list[str] = field(default_factory=list)

    def on_commit(self, _session: Any) -> None:
        task_id = structured_logging._context.get().get("task_id")
        if task_id is None:
            return
        if task_id not in self._order:
            self._order.append(task_id)
        self.commits[task_id] += 1
        number = self._order.index(task_id) + 1
        if self.commits[task_id] == number <= self.most:
            self.crashed[task_id] = number
            _crash()


@dataclass
class RepeatedCrashes:
    """Crashes again and again: after one commit, then after two more, up to five, then after one again."""

    most: int
    count: int = 0
    _since: int = 0

    def on_commit(self, _session: Any) -> None:
        if "task_id" not in structured_logging._context.get() or self.count == self.most:
            return
        self._since += 1
        # Some steps commit several times; one that crashes at its first commit each time does not end.
        if self._since > self.count % _LONGEST_STEP:
            self.count, self._since = self.count + 1, 0
            _crash()


def _crash() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()


@contextmanager
def crashing(*, most: int) -> Iterator[Crashes]:
    with _called_after_commits(Crashes(most)) as crashes:
        yield crashes


@contextmanager
def crashing_again(*, most: int) -> Iterator[RepeatedCrashes]:
    with _called_after_commits(RepeatedCrashes(most)) as crashes:
        yield crashes


_AnyCrashes = TypeVar("_AnyCrashes", Crashes, RepeatedCrashes)


@contextmanager
def _called_after_commits(crashes: _AnyCrashes) -> Iterator[_AnyCrashes]:
    event.listen(Session, "after_commit", crashes.on_commit)
    try:
        yield crashes
    finally:
        event.remove(Session, "after_commit", crashes.on_commit)
