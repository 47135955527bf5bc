import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_CHOICES = 256
_TOKEN = re.compile(r"\\.|\[[!^]?\]?[^]]*\]|.", re.DOTALL)
_SEVERAL = re.compile(r"(\*\*/)+")


class InvalidGlob(Exception):
    """The glob pattern is invalid; the message says why."""


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression for whole paths: `**` is any number of directories, `{a,b}` alternatives.

    The text between two wildcards matches at its first occurrence only (atomic group, `(?>…)`). Backtracking would take hours for a
    few wildcards, and `re` holds the GIL meanwhile.
    """
    choices = list(islice(_choices(pattern), _MAX_CHOICES + 1))
    if len(choices) > _MAX_CHOICES:
        raise InvalidGlob(
            f"The braces expand to more than {_MAX_CHOICES} patterns. Use several calls."
        )
    try:
        return re.compile("|".join(f"(?:{_path(choice)})" for choice in choices), re.DOTALL)
    except re.error as error:
        raise InvalidGlob(f"Invalid glob {pattern}: {error}.") from None


def _choices(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    for part in braces[1].split(","):
        yield from _choices(f"{before}{part}{after}")


def _path(pattern: str) -> str:
    *directories, name = _SEVERAL.sub("**/", pattern).split("/")
    first, *others = _split("**", directories)
    runs = ["".join(f"{_name(part)}/" for part in run) for run in others]
    above = _after_each("(?:[^/]+/)*", runs)
    return (
        "".join(f"{_name(part)}/" for part in first)
        + above
        + (".+" if name == "**" else _name(name))
    )


def _name(pattern: str) -> str:
    first, *others = _split("*", [token[0] for token in _TOKEN.finditer(pattern)])
    runs = ["".join(map(_part, run)) for run in others]
    return "".join(map(_part, first)) + _after_each("[^/]*", runs)


def _split(separator: str, parts: Iterable[str]) -> list[list[str]]:
    runs = [list[str]()]
    for part in parts:
        if part == separator:
            runs.append([])
        else:
            runs[-1].append(part)
    return runs


def _after_each(anything: str, runs: Sequence[str]) -> str:
    """Match the runs in order, each after `anything`, the last one at the end."""
    if not runs:
        return ""
    *before, last = runs
    return "".join(f"(?>{anything}?{run})" for run in before) + anything + last


def _part(token: str) -> str:
    if len(token) > 1 and token[0] == "\\":
        return re.escape(token[1])
    if len(token) > 1:
        inside = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]"
    return "[^/]" if token == "?" else re.escape(token)  # noqa: S105 - a token of a pattern
