"""Text that a terminal would show for its input, line by line; cursor positions on the screen are ignored."""

import re

_FULL_SCREEN = re.compile(r"\x1b\[\?(?:1049|1047|47)h.*?\x1b\[\?(?:1049|1047|47)l", re.DOTALL)
_ERASE = "\ue000"  # private use character: erase to end of line
_ERASING = re.compile(r"\x1b\[0?K")
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor positions
    r"|\x1b[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles
    r"|\x1b[ -/]*[0-~]"
    r"|[\x0e\x0f]"
)
_MOVING = re.compile(f"[\r\b{_ERASE}]")
_MARK = re.compile(r"\x1b\]133;[CD];[^\x07]*\x07")


def render_terminal_text(data: bytes) -> str:
    text = _MARK.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
    text = _FULL_SCREEN.sub("", text)
    text = _SEQUENCE.sub("", _ERASING.sub(_ERASE, text))
    return "\n".join(map(_overwrite_line, text.split("\n")))


def _overwrite_line(line: str) -> str:
    """Apply carriage returns and backspaces, as progress bars use them."""
    if not _MOVING.search(line):
        return line
    cells: list[str] = []
    column = 0
    for character in line:
        if character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        elif character == _ERASE:
            del cells[column:]
        else:
            cells[column : column + 1] = [character]
            column += 1
    return "".join(cells)
