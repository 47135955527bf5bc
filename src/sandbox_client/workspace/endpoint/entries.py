from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal["file", "link", "directory"]


@dataclass(frozen=True)
class Entry:
    """What is at a path; `content` is a file's hash or a link's target, `stamp` tells whether to look again."""

    kind: Kind
    content: str = ""
    executable: bool = False
    stamp: str = ""


@dataclass(frozen=True)
class Change:
    """What is to be at a path (`to`), if there still is what was seen there (`seen`); None is nothing."""

    path: str
    seen: Entry | None
    to: Entry | None
    source: str = ""  # where the content is taken from, if that is another path

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Change":
        seen, to = (Entry(**told[side]) if told[side] else None for side in ("seen", "to"))
        return cls(told["path"], seen, to, told["source"])


def alike(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return replace(one, stamp="") == replace(other, stamp="")


def above(path: str) -> Iterator[str]:
    """Name the directories that a path is in, from the root down."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def tell_entries(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {path: asdict(entry) for path, entry in entries.items()}


def read_entries(told: Mapping[str, Any]) -> dict[str, Entry]:
    return {path: Entry(**entry) for path, entry in told.items()}
