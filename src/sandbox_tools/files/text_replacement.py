import re
from difflib import get_close_matches
from itertools import dropwhile

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.toolkit.truncation import truncate_line

_MAX_LINES_LISTED = 10


class Edit(BaseModel):
    """One replacement in a file."""

    old_string: str = Field(
        description="Exact text to replace, including whitespace, without read_file's line numbers."
        " Must be unique in the file unless replace_all is set."
    )
    new_string: str = Field(description="Replacement; empty to delete the text.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


def replace(text: str, edit: Edit) -> tuple[str, list[int]]:
    """Return the new text and the numbers of the changed lines."""
    old, new = _with_line_endings_of(text, edit)
    if not old:
        raise ToolError("old_string is empty. To write a whole file, use write_file.")
    if old == new:
        raise ToolError("old_string and new_string are identical.")
    lines = _find(text, old)
    if not lines:
        raise ToolError(f"old_string was not found. {describe_nearest_match(text, old)}")
    if len(lines) > 1 and not edit.replace_all:
        raise ToolError(
            f"old_string occurs {len(lines)} times, at {format_lines(lines)}. Include surrounding text"
            " to make it unique, or set replace_all=true."
        )
    return text.replace(old, new), lines


def format_lines(lines: list[int]) -> str:
    numbers = ", ".join(map(str, lines[:_MAX_LINES_LISTED]))
    more = f" and {len(lines) - _MAX_LINES_LISTED} more" if len(lines) > _MAX_LINES_LISTED else ""
    return f"line{'' if len(lines) == 1 else 's'} {numbers}{more}"


def _with_line_endings_of(text: str, edit: Edit) -> tuple[str, str]:
    """Use the file's line endings: agents neither see nor write carriage returns."""
    old, new = edit.old_string, edit.new_string
    ends = text.count("\r\n")
    if not ends or ends != text.count("\n") or "\r" in old + new:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\n", "\r\n")


def _find(text: str, old: str) -> list[int]:
    lines, line, seen = list[int](), 1, 0
    start = text.find(old)
    while start >= 0:
        line += text.count("\n", seen, start)
        lines.append(line)
        seen, start = start, text.find(old, start + len(old))
    return lines


_MAX_COMPARED = 20_000
_MAX_COMPARED = 300
_MAX_SHOWN = 20
_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


def describe_nearest_match(text: str, wanted: str) -> str:
    """Describe the most similar text and how it differs."""
    unnumbered = _NUMBER.sub("", wanted)
    if unnumbered != wanted and unnumbered in text:
        return "It contains the line numbers of read_file: remove them."
    lines, wanted_lines = text.splitlines(), _strip_blank_lines(wanted.splitlines())
    if not wanted_lines:
        return "It is only whitespace: include surrounding text."
    if (start := _find_ignoring_whitespace(lines, wanted_lines)) is not None:
        return f"It occurs with different whitespace:\n{_show(lines, start, len(wanted_lines))}"
    if (start := _find_similar(lines, wanted_lines)) is not None:
        return f"The nearest match is:\n{_show(lines, start, len(wanted_lines))}"
    return "Nothing similar was found: read the file again."


def _strip_blank_lines(lines: list[str]) -> list[str]:
    """Remove blank lines at both ends."""
    for _ in range(2):
        lines = list(dropwhile(lambda line: not line.strip(), lines))[::-1]
    return lines


def _find_ignoring_whitespace(lines: list[str], wanted_lines: list[str]) -> int | None:
    plain, wanted = [["".join(line.split()) for line in some] for some in (lines, wanted_lines)]
    starts = (start for start, line in enumerate(plain) if line == wanted[0])
    return next((at for at in starts if plain[at : at + len(wanted)] == wanted), None)


def _find_similar(lines: list[str], wanted_lines: list[str]) -> int | None:
    """Locate the text by its longest line."""
    longest = max(range(len(wanted_lines)), key=lambda number: len(wanted_lines[number].strip()))
    compared = {
        line.strip()[:_MAX_COMPARED]: number for number, line in enumerate(lines[:_MAX_COMPARED])
    }
    near = get_close_matches(wanted_lines[longest].strip()[:_MAX_COMPARED], compared, n=1)
    return max(compared[near[0]] - longest, 0) if near else None


def _show(lines: list[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _MAX_SHOWN)]
    return "\n".join(
        f"{number}\t{truncate_line(line)}" for number, line in enumerate(shown, start + 1)
    )
