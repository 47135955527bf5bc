from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.files.nearness import tell_nearest

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
