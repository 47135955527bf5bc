"""What ripgrep does, for sandboxes without it, and as a program too: a regular expression that takes for ever can only be killed."""

import io
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from sandbox_tools.bounds import cut_line
from sandbox_tools.files.opening import open_file
from sandbox_tools.files.patterns import InvalidPattern, compile_glob
from sandbox_tools.files.query import Query
from sandbox_tools.files.text import SAMPLE, find_encoding
from sandbox_tools.files.walking import walk

_LONGEST_LINE = 2**20
_BREAK = "--"
_FAILED = 2
Matches = Callable[[str], object]


def command(query: Query) -> list[str]:
    """Say how it is run: with nothing imported from where it is run."""
    asked = json.dumps(asdict(query) | {"root": str(query.root)})
    return [sys.executable, "-P", "-m", __name__, asked]


def main() -> int:
    asked = json.loads(sys.argv[1])
    query = Query(**asked | {"root": Path(asked["root"])})
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    try:
        for line in _search(query):
            sys.stdout.write(f"{line}\n")
    except InvalidPattern as error:
        sys.stderr.write(str(error))
        return _FAILED
    return 0


def _search(query: Query) -> Iterator[str]:
    matches = _compile(query)
    is_first = True
    for name in _files(query):
        for line in _search_file(query, query.directory / name, matches):
            if not (is_first and line == _BREAK):
                yield line
            is_first = False


def _compile(query: Query) -> Matches:
    pattern = re.escape(query.pattern) if query.is_literal else query.pattern
    try:
        return re.compile(pattern, re.IGNORECASE if query.ignores_case else 0).search
    except re.error as error:
        raise InvalidPattern(f"the pattern is no regular expression, {error}.") from None


def _files(query: Query) -> Iterator[str]:
    if query.root != query.directory:
        return iter([query.root.name])
    wanted = _is_wanted(query.glob) if query.glob else lambda _name: True
    found = walk(query.root, lambda: None)
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


def _search_file(query: Query, path: Path, matches: Matches) -> Iterator[str]:
    """Tell of one file; what cannot be read has nothing in it."""
    try:
        with open_file(path) as file:
            encoding = find_encoding(file.read(SAMPLE + 1))
            if encoding is None:
                return
            file.seek(len(encoding.bom))
            text = io.TextIOWrapper(file, encoding.codec, errors="replace", newline="\n")
            yield from _tell(query, path, _lines(text), matches)
    except OSError:
        return


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Give the lines until one is none of a text."""
    while line := text.readline(_LONGEST_LINE):
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


if __name__ == "__main__":
    sys.exit(main())
