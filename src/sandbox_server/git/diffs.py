from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_GITLINK = "160000"
_BINARY = "-"
_WITH_TWO_PATHS = ("R", "C")


@dataclass(frozen=True, kw_only=True)
class DiffText:
    """A diff as text, cut off at its limit."""

    text: str
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A file that differs between two commits."""

    path: str
    status: str
    """`A`dded, `M`odified, `D`eleted, `R`enamed, `C`opied or changed in `T`ype."""
    old_path: str | None = None
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_submodule: bool = False


def parse_changes(content: bytes) -> Sequence[ChangedFile]:
    """Read `git diff-tree -z --raw --numstat`."""
    fields = iter(content.decode(errors="replace").split("\0"))
    raw: dict[str, ChangedFile] = {}
    changed: list[ChangedFile] = []
    for field in fields:
        if field.startswith(":"):
            one = _read_raw(field, fields)
            raw[one.path] = one
        elif "\t" in field:
            changed.append(_with_lines(field, fields, raw))
    return changed


def _read_raw(field: str, fields: Iterator[str]) -> ChangedFile:
    old_mode, new_mode, _, _, status = field.lstrip(":").split(" ")
    path = next(fields)
    old_path = None
    if status.startswith(_WITH_TWO_PATHS):
        old_path, path = path, next(fields)
    return ChangedFile(
        path=path,
        status=status[0],
        old_path=old_path,
        is_submodule=_GITLINK in (old_mode, new_mode),
    )


def _with_lines(field: str, fields: Iterator[str], raw: dict[str, ChangedFile]) -> ChangedFile:
    added, removed, path = field.split("\t", 2)
    if not path:  # renamed: both names follow
        next(fields)
        path = next(fields)
    one, is_binary = raw[path], added == _BINARY
    return ChangedFile(
        path=path,
        status=one.status,
        old_path=one.old_path,
        added=0 if is_binary else int(added),
        removed=0 if is_binary else int(removed),
        is_binary=is_binary,
        is_submodule=one.is_submodule,
    )
