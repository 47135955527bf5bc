import re
from difflib import get_close_matches
from itertools import dropwhile

from sandbox_tools.toolkit.truncation import cut_line

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
