"""Crashes of the worker of tasks: its handler ends right before or after one of its commits."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session

from sandbox_server import structured_logging

MOST = 45
"""A task has 28 to 36 commits from its creation to its pull request, those of its commands and its sandbox included."""

_LONGEST_STEP = 5
When = Literal["before_commit", "after_commit"]


@dataclass
class Crashes:
    """The first task crashes at its first commit, the second at its second, and so on, and each of them again and again."""

    tasks: int
    when: When = "after_commit"
    commits: Counter[str] = field(default_factory=Counter)
    crashed: set[int] = field(default_factory=set)
    """Numbers of the commits at which a task crashed."""
    _order: list[str] = field(default_factory=list)

    def on_commit(self, _session: Any) -> None:
        task_id = structured_logging._context.get().get("task_id")
        if task_id is None:
            return
        if task_id not in self._order:
            self._order.append(task_id)
        self.commits[task_id] += 1
        count = self.commits[task_id]
        if count <= MOST and (count - 1) % self.tasks == self._order.index(task_id):
            self.crashed.add(count)
            _crash(self.when)


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
            _crash("after_commit")


def _crash(when: When) -> None:
    if when == "before_commit":
        raise asyncio.CancelledError  # nothing of the transaction is kept
    current = asyncio.current_task()
    assert current is not None
    current.cancel()


@contextmanager
def crashing(*, tasks: int, when: When = "after_commit") -> Iterator[Crashes]:
    with _called_at_commits(Crashes(tasks, when), when) as crashes:
        yield crashes


@contextmanager
def crashing_again(*, most: int) -> Iterator[RepeatedCrashes]:
    with _called_at_commits(RepeatedCrashes(most), "after_commit") as crashes:
        yield crashes


_AnyCrashes = TypeVar("_AnyCrashes", Crashes, RepeatedCrashes)


@contextmanager
def _called_at_commits(crashes: _AnyCrashes, when: When) -> Iterator[_AnyCrashes]:
    event.listen(Session, when, crashes.on_commit)
    try:
        yield crashes
    finally:
        event.remove(Session, when, crashes.on_commit)
