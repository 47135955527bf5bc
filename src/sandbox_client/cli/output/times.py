import time
from datetime import UTC, datetime

from sandbox_client.cli.output.durations import say_duration


def say_when(instant: datetime) -> str:
    """Say how far away an instant is."""
    distance = instant - _now()
    if distance.total_seconds() < 0:
        return f"{say_duration(-distance)} ago"
    return f"in {say_duration(distance)}"


def say_instant(instant: datetime) -> str:
    """Give an instant in this machine's time zone, and how far away it is."""
    return f"{say_time(instant)} ({say_when(instant)})"


def say_time(instant: datetime) -> str:
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
