import unicodedata
from collections.abc import Callable, Iterator, Sequence

from sandbox_client.console.escape import escape_controls

Paint = Callable[[str, str], str]
"""Colors a padded cell by its text."""

_GAP = "  "
_ELLIPSIS = "…"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    longest: int | None = None,
    paint: Paint = lambda padded, _: padded,
) -> Iterator[str]:
    """Yield the lines of a table; `longest` truncates cells to that many columns."""
    shown = [[_fitted(escape_controls(cell), longest) for cell in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(heads, *shown, strict=True)]
    yield _GAP.join(map(_padded, heads, widths)).rstrip()
    for row in shown:
        cells = (paint(_padded(cell, width), cell) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join(cells).rstrip()


def width_of(text: str) -> int:
    """Count the columns that a text takes."""
    return sum(_columns(each) for each in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _fitted(text: str, longest: int | None) -> str:
    if longest is None or width_of(text) <= longest:
        return text
    while width_of(text) > longest - 1:
        text = text[:-1]
    return text + _ELLIPSIS
