"""What ripgrep does, for sandboxes without it."""

import io
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from fastmcp.exceptions import ToolError

from sandbox_tools.bounds import BoundedLines, cut_line
from sandbox_tools.files.opening import open_file
from sandbox_tools.files.patterns import compile_glob
from sandbox_tools.files.query import Query
from sandbox_tools.files.text import SAMPLE, find_encoding
from sandbox_tools.files.walking import walk
from sandbox_tools.threads import Check

_LONGEST_LINE = 2**20
_BREAK = "--"
Matches = Callable[[str], object]


def search(query: Query, lines: BoundedLines, check: Check) -> None:
    """Search until there are as many lines as are told."""
    matches = _compile(query)
    for name in _files(query, check):
        path = query.directory / name
        for line in _search_file(query, path, matches, check):
            is_needless = line == _BREAK and not lines.lines
            if not is_needless and not lines.add(line):
                return


def _compile(query: Query) -> Matches:
    pattern = re.escape(query.pattern) if query.is_literal else query.pattern
    try:
        return re.compile(pattern, re.IGNORECASE if query.ignores_case else 0).search
    except re.error as error:
        raise ToolError(
            f"The search cannot be made: the pattern is no regular expression, {error}."
        ) from None


def _files(query: Query, check: Check) -> Iterator[str]:
    if query.root != query.directory:
        return iter([query.root.name])
    wanted = _is_wanted(query.glob) if query.glob else lambda _name: True
    found = walk(query.root, check)
    return (
        some.name
        for some in found
        if some.entry.is_file(follow_symlinks=False) and wanted(some.name)
    )


def _is_wanted(glob: str) -> Callable[[str], bool]:
    """Understand a glob as ripgrep does: without a slash it is about names, with ! about what is left out."""
    pattern = compile_glob(glob.removeprefix("!").removeprefix("/"))
    is_about_names = "/" not in glob.removeprefix("!")

    def is_wanted(name: str) -> bool:
        matched = pattern.fullmatch(name.rpartition("/")[2] if is_about_names else name)
        return bool(matched) != glob.startswith("!")

    return is_wanted


def _search_file(query: Query, path: Path, matches: Matches, check: Check) -> Iterator[str]:
    """Tell of one file; what cannot be read has nothing in it."""
    try:
        with open_file(path) as file:
            encoding = find_encoding(file.read(SAMPLE + 1))
            if encoding is None:
                return
            file.seek(len(encoding.bom))
            text = io.TextIOWrapper(file, encoding.codec, errors="replace", newline="\n")
            yield from _tell(query, path, _lines(text, check), matches)
    except (OSError, ToolError):
        return


def _lines(text: io.TextIOWrapper, check: Check) -> Iterator[str]:
    """Give the lines until one is none of a text."""
    while line := text.readline(_LONGEST_LINE):
        check()
        if len(line) == _LONGEST_LINE or "\0" in line:
            return
        yield line.removesuffix("\n").removesuffix("\r")


def _tell(query: Query, path: Path, lines: Iterator[str], matches: Matches) -> Iterator[str]:
    if query.mode == "content":
        for line in _with_context(lines, matches, query.context):
            yield f"{path}{line}" if line else _BREAK
        return
    count = 0
    for _ in filter(matches, lines):
        count += 1
        if query.mode == "files":
            yield str(path)
            return
    if count:
        yield f"{path}:{count}"


def _with_context(lines: Iterator[str], matches: Matches, context: int) -> Iterator[str]:
    """Give what matches with the lines around it, and nothing between those that do not follow each other."""
    before, after, last = deque[str](maxlen=context), 0, 0
    for number, line in enumerate(lines, 1):
        if matches(line):
            first = number - len(before)
            if context and (not last or first > last + 1):
                yield ""
            yield from (f"-{at}-{cut_line(one)}" for at, one in enumerate(before, first))
            yield f":{number}:{cut_line(line)}"
            before.clear()
            after, last = context, number
        elif after:
            yield f"-{number}-{cut_line(line)}"
            after, last = after - 1, number
        else:
            before.append(line)
