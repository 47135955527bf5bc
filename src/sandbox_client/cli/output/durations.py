"""Parses and formats durations: `90`, `90s`, `15m`, `2h`, `1h30m`, `7d`."""

import re
from datetime import timedelta

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_MOST_PARTS = 2
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})([smhd])")


def parse_duration(text: str) -> timedelta:
    """Parse a duration; a bare number means seconds."""
    written = text.strip().lower()
    if re.fullmatch(_NUMBER, written):
        written += "s"
    parts = _PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"{text!r} is not a duration. Use 90, 90s, 15m, 2h, 1h30m or 7d.")
    try:
        return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"{text!r} is too long.") from None


def format_duration(duration: timedelta) -> str:
    """Format a duration in its two largest units."""
    left = max(0, round(duration.total_seconds()))
    parts: list[tuple[int, str]] = []
    for word, size in _WORDS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, word))
    text = [f"{count} {word}" for count, word in parts[:_MOST_PARTS] if count]
    return " ".join(text) or "0 s"


def in_seconds(duration: timedelta | None) -> float | None:
    """Convert to the API's seconds; None stays None."""
    return None if duration is None else duration.total_seconds()
