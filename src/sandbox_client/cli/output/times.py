import time
from datetime import UTC, datetime

from sandbox_client.cli.output.durations import format_duration


def format_relative(instant: datetime) -> str:
    """Format an instant relative to now."""
    distance = instant - _now()
    if distance.total_seconds() < 0:
        return f"{format_duration(-distance)} ago"
    return f"in {format_duration(distance)}"


def format_instant(instant: datetime) -> str:
    """Format an instant in the local time zone, with its distance from now."""
    return f"{format_time(instant)} ({format_relative(instant)})"


def format_time(instant: datetime) -> str:
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
