from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal["file", "link", "directory"]


@dataclass(frozen=True)
class Entry:
    """The entry at a path: `content` is a file's hash or a link's target; an unchanged `stamp` means unchanged content."""

    kind: Kind
    content: str = ""
    executable: bool = False
    stamp: str = ""


@dataclass(frozen=True)
class Change:
    """Replace what is at a path by `after`, if it still is `before`; None means no entry."""

    path: str
    before: Entry | None
    after: Entry | None
    source: str = ""  # where the content is taken from, if that is another path

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Change":
        before, after = (
            Entry(**fields[key]) if fields[key] else None for key in ("before", "after")
        )
        return cls(fields["path"], before, after, fields["source"])


def is_same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return replace(one, stamp="") == replace(other, stamp="")


def parent_directories(path: str) -> Iterator[str]:
    """Name the directories that a path is in, from the root down."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def dump_entries(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {path: asdict(entry) for path, entry in entries.items()}


def load_entries(fields: Mapping[str, Any]) -> dict[str, Entry]:
    return {path: Entry(**entry) for path, entry in fields.items()}
