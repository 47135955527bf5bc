"""What has to happen so that two sides of a directory are the same again: a pure function of three looks at it.

`base` is what both had when they were the same last. What one side alone changed goes to the other. What both changed
is kept twice: ours stays where it is, the sandbox's gets a name of its own beside it. What one side deleted and the
other changed is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from pathlib import PurePosixPath

from sandbox_client.workspace.endpoint.entries import Change, Entry, above, alike

Entries = Mapping[str, Entry]


class Direction(Flag):
    PUSH = auto()
    PULL = auto()
    BOTH = PUSH | PULL


@dataclass
class Plan:
    """What is to change on each side, what is known to be the same, and what a person should be told."""

    push: list[Change] = field(default_factory=list)
    pull: list[Change] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept_twice: dict[str, str] = field(default_factory=dict)  # ours, and the name of the sandbox's
    restored: list[str] = field(default_factory=list)  # deleted on one side, changed on the other
    waiting: dict[Direction, list[str]] = field(default_factory=dict)  # not asked for this time
    stuck: list[str] = field(default_factory=list)  # a file here and a directory there


def make_plan(base: Entries, near: Entries, far: Entries, direction: Direction) -> Plan:
    plan = Plan(waiting={Direction.PUSH: [], Direction.PULL: []})
    for path in sorted({*base, *near, *far}):
        _decide(plan, path, base.get(path), near, far)
    if Direction.PUSH not in direction:
        plan.waiting[Direction.PUSH] = [change.path for change in plan.push]
        plan.push = []
    if Direction.PULL not in direction:
        copies = set(plan.kept_twice.values())
        plan.waiting[Direction.PULL] = [one.path for one in plan.pull if one.path not in copies]
        plan.pull = [change for change in plan.pull if change.path in copies]
    plan.push = _with_directories(plan.push, there=far, here=near)
    plan.pull = _with_directories(plan.pull, there=near, here=far)
    return plan


def _decide(plan: Plan, path: str, was: Entry | None, near: Entries, far: Entries) -> None:
    ours, theirs = near.get(path), far.get(path)
    if alike(ours, theirs):
        plan.same.append(path)
    elif alike(theirs, was):
        plan.push.append(Change(path, seen=theirs, to=ours))
    elif alike(ours, was):
        plan.pull.append(Change(path, seen=ours, to=theirs))
    elif ours is None:
        plan.restored.append(path)
        plan.pull.append(Change(path, seen=None, to=theirs))
    elif theirs is None:
        plan.restored.append(path)
        plan.push.append(Change(path, seen=None, to=ours))
    elif theirs.kind == "directory":
        plan.stuck.append(path)
    else:
        _keep_twice(plan, path, ours, theirs, near, far)


def _keep_twice(
    plan: Plan, path: str, ours: Entry, theirs: Entry, near: Entries, far: Entries
) -> None:
    copy = _name_of_copy(path, theirs, near, far)
    plan.kept_twice[path] = copy
    plan.push.append(Change(path, seen=theirs, to=ours))
    if copy not in near:
        plan.pull.append(Change(copy, seen=None, to=theirs, source=path))


def _name_of_copy(path: str, theirs: Entry, near: Entries, far: Entries) -> str:
    """Name what is kept besides ours; where that was begun before, it has its name already."""
    place = PurePosixPath(path)
    number = 1
    while True:
        told = "from-sandbox" if number == 1 else f"from-sandbox-{number}"
        copy = str(place.with_name(f"{place.stem}.{told}{place.suffix}"))
        there = near.get(copy)
        if (there is None and copy not in far) or alike(there, theirs):
            return copy
        number += 1


def _with_directories(changes: list[Change], *, there: Entries, here: Entries) -> list[Change]:
    """Make the directories that something is to be in, and remove none that still has something in it."""
    gone = {change.path for change in changes if change.to is None}
    made = {change.path: change.to for change in changes if change.to is not None}
    needed = _directories_of([*(path for path in there if path not in gone), *made])
    missing = (
        Change(path, seen=None, to=here[path])
        for path in sorted(needed)
        if path not in there and path not in made and path in here
    )
    kept = (one for one in changes if one.to is not None or one.path not in needed)
    return [*missing, *kept]


def _directories_of(paths: Iterable[str]) -> set[str]:
    return {directory for path in paths for directory in above(path)}
