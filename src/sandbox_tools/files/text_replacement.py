import re
from difflib import get_close_matches
from itertools import dropwhile

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.toolkit.truncation import cut_line

_MOST_LINES_TOLD = 10


class Edit(BaseModel):
    """One replacement in a file."""

    old_string: str = Field(
        description="The exact text to replace, with all its whitespace, and without read_file's line"
        " numbers. It has to be there once, unless replace_all is set."
    )
    new_string: str = Field(description="The text to put there; empty to remove it.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


def replace(text: str, edit: Edit) -> tuple[str, list[int]]:
    """Give the text after the edit, and the lines at which it was made."""
    old, new = _with_ends_of(text, edit)
    if not old:
        raise ToolError("old_string is empty. Use write_file to write a whole file.")
    if old == new:
        raise ToolError("old_string and new_string are the same, so there is nothing to do.")
    lines = _find(text, old)
    if not lines:
        raise ToolError(f"old_string is not in the file. {tell_nearest(text, old)}")
    if len(lines) > 1 and not edit.replace_all:
        raise ToolError(
            f"old_string is {len(lines)} times in the file, at {tell_lines(lines)}. Add text around it"
            " until it is there once, or set replace_all."
        )
    return text.replace(old, new), lines


def tell_lines(lines: list[int]) -> str:
    told = ", ".join(map(str, lines[:_MOST_LINES_TOLD]))
    more = f" and {len(lines) - _MOST_LINES_TOLD} more" if len(lines) > _MOST_LINES_TOLD else ""
    return f"line{'' if len(lines) == 1 else 's'} {told}{more}"


def _with_ends_of(text: str, edit: Edit) -> tuple[str, str]:
    """Have the ends of lines be the file's: agents see no carriage returns, and write none."""
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


_MOST_COMPARED = 20_000
_LONGEST_COMPARED = 300
_MOST_SHOWN = 20
_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


def tell_nearest(text: str, wanted: str) -> str:
    """Say what in a text is nearly what was looked for, and differs in which way."""
    unnumbered = _NUMBER.sub("", wanted)
    if unnumbered != wanted and unnumbered in text:
        return "Without the line numbers of read_file it is: leave them out."
    lines, sought = text.splitlines(), _without_ends(wanted.splitlines())
    if not sought:
        return "It is only whitespace: add the text around it."
    if (start := _find_regardless_of_whitespace(lines, sought)) is not None:
        return f"With other whitespace it is:\n{_show(lines, start, len(sought))}"
    if (start := _find_similar(lines, sought)) is not None:
        return f"The nearest is:\n{_show(lines, start, len(sought))}"
    return "Nothing is near to it: read the file again."


def _without_ends(lines: list[str]) -> list[str]:
    """Leave out empty lines at the beginning and at the end."""
    for _ in range(2):
        lines = list(dropwhile(lambda line: not line.strip(), lines))[::-1]
    return lines


def _find_regardless_of_whitespace(lines: list[str], sought: list[str]) -> int | None:
    plain, wanted = [["".join(line.split()) for line in some] for some in (lines, sought)]
    starts = (start for start, line in enumerate(plain) if line == wanted[0])
    return next((at for at in starts if plain[at : at + len(wanted)] == wanted), None)


def _find_similar(lines: list[str], sought: list[str]) -> int | None:
    """Find by its longest line where the text might be."""
    telling = max(range(len(sought)), key=lambda number: len(sought[number].strip()))
    compared = {
        line.strip()[:_LONGEST_COMPARED]: number
        for number, line in enumerate(lines[:_MOST_COMPARED])
    }
    near = get_close_matches(sought[telling].strip()[:_LONGEST_COMPARED], compared, n=1)
    return max(compared[near[0]] - telling, 0) if near else None


def _show(lines: list[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _MOST_SHOWN)]
    return "\n".join(f"{number}\t{cut_line(line)}" for number, line in enumerate(shown, start + 1))
