from collections.abc import Iterable
from dataclasses import dataclass

_WIDTHS = (44, 12, 12, 8, 8)
_SMALL_RATIO = 0.1


@dataclass(frozen=True)
class Figure:
    """A measurement, with the floor of the same run if there is one."""

    name: str
    ours: float
    unit: str
    target: float | None = None
    floor: float | None = None

    @property
    def judged(self) -> float:
        """The value compared with the target: the ratio to the floor, or the figure itself."""
        return self.ours if self.floor is None else self.ours / self.floor

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.judged <= self.target else "MISSED"


def print_heading() -> None:
    _print_row(("", "ours", "floor", "ratio", "target", ""))


def print_figure(figure: Figure) -> None:
    unit = figure.unit
    floor, ratio = "-", "-"
    if figure.floor is not None:
        digits = 2 if figure.judged >= _SMALL_RATIO else 4
        floor, ratio = f"{figure.floor:.1f} {unit}", f"{figure.judged:.{digits}f}"
    _print_row(
        (
            figure.name,
            f"{figure.ours:.{1 if figure.ours >= 1 else 2}f} {unit}",
            floor,
            ratio,
            "-" if figure.target is None else f"{figure.target:g}",
            figure.verdict,
        )
    )


def print_not_measured(name: str, reason: str) -> None:
    print(f"{name}: not measured, {reason}", flush=True)


def _print_row(cells: Iterable[str]) -> None:
    name, *others, verdict = cells
    columns = (cell.rjust(width) for cell, width in zip(others, _WIDTHS[1:], strict=True))
    print(name.ljust(_WIDTHS[0]), *columns, verdict, flush=True)
