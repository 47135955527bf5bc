"""A three-way merge of directory listings: a pure function of `base`, `local` and `remote`.

`base` is the last common state. A change on one side is copied to the other. Of a file changed on both sides both
versions are kept: the local one under its name, the sandbox's beside it under another. A file deleted on one side and
changed on the other is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from pathlib import PurePosixPath

from sandbox_client.workspace.endpoint.entries import Change, Entry, is_same, parent_directories

Entries = Mapping[str, Entry]


class Direction(Flag):
    PUSH = auto()
    PULL = auto()
    BOTH = PUSH | PULL


@dataclass
class Plan:
    """The changes to make on each side, and what to report."""

    push: list[Change] = field(default_factory=list)
    pull: list[Change] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(
        default_factory=dict
    )  # local path: name of the sandbox's version
    restored: list[str] = field(default_factory=list)  # deleted on one side, changed on the other
    waiting: dict[Direction, list[str]] = field(
        default_factory=dict
    )  # in the direction that was not requested
    type_conflicts: list[str] = field(
        default_factory=list
    )  # a file on one side, a directory on the other


def make_plan(base: Entries, local: Entries, remote: Entries, direction: Direction) -> Plan:
    plan = Plan(waiting={Direction.PUSH: [], Direction.PULL: []})
    for path in sorted({*base, *local, *remote}):
        _decide(plan, path, base.get(path), local, remote)
    if Direction.PUSH not in direction:
        plan.waiting[Direction.PUSH] = [change.path for change in plan.push]
        plan.push = []
    if Direction.PULL not in direction:
        copies = set(plan.conflicts.values())
        plan.waiting[Direction.PULL] = [
            change.path for change in plan.pull if change.path not in copies
        ]
        plan.pull = [change for change in plan.pull if change.path in copies]
    plan.push = _with_directories(plan.push, there=remote, here=local)
    plan.pull = _with_directories(plan.pull, there=local, here=remote)
    return plan


def _decide(plan: Plan, path: str, was: Entry | None, local: Entries, remote: Entries) -> None:
    ours, theirs = local.get(path), remote.get(path)
    if is_same(ours, theirs):
        plan.same.append(path)
    elif is_same(theirs, was):
        plan.push.append(Change(path, before=theirs, after=ours))
    elif is_same(ours, was):
        plan.pull.append(Change(path, before=ours, after=theirs))
    elif ours is None:
        plan.restored.append(path)
        plan.pull.append(Change(path, before=None, after=theirs))
    elif theirs is None:
        plan.restored.append(path)
        plan.push.append(Change(path, before=None, after=ours))
    elif theirs.kind == "directory":
        plan.type_conflicts.append(path)
    else:
        _keep_both(plan, path, ours, theirs, local, remote)


def _keep_both(
    plan: Plan, path: str, ours: Entry, theirs: Entry, local: Entries, remote: Entries
) -> None:
    copy = _conflict_name(path, theirs, local, remote)
    plan.conflicts[path] = copy
    plan.push.append(Change(path, before=theirs, after=ours))
    if copy not in local:
        plan.pull.append(Change(copy, before=None, after=theirs, source=path))


def _conflict_name(path: str, theirs: Entry, local: Entries, remote: Entries) -> str:
    """Choose a free name for the sandbox's version; reuse the name of an identical copy."""
    place = PurePosixPath(path)
    number = 1
    while True:
        suffix = "from-sandbox" if number == 1 else f"from-sandbox-{number}"
        copy = str(place.with_name(f"{place.stem}.{suffix}{place.suffix}"))
        there = local.get(copy)
        if (there is None and copy not in remote) or is_same(there, theirs):
            return copy
        number += 1


def _with_directories(changes: list[Change], *, there: Entries, here: Entries) -> list[Change]:
    """Add missing parent directories, and keep directories that are not empty."""
    gone = {change.path for change in changes if change.after is None}
    made = {change.path: change.after for change in changes if change.after is not None}
    needed = _directories_of([*(path for path in there if path not in gone), *made])
    missing = (
        Change(path, before=None, after=here[path])
        for path in sorted(needed)
        if path not in there and path not in made and path in here
    )
    kept = (change for change in changes if change.after is not None or change.path not in needed)
    return [*missing, *kept]


def _directories_of(paths: Iterable[str]) -> set[str]:
    return {directory for path in paths for directory in parent_directories(path)}
