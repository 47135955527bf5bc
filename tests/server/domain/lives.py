"""Sandboxes at moments of their lives, and the moments."""

from datetime import UTC, datetime, timedelta

from sandbox_server.domain.deadlines import Deadlines, admit, pause, queue, start
from sandbox_server.domain.state import OnTimeout, State, Target

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def wanted(
    *,
    timeout: timedelta = HOUR,
    idle_timeout: timedelta | None = None,
    on_timeout: OnTimeout = OnTimeout.PAUSE,
) -> Deadlines:
    return Deadlines(
        state=State.QUEUED,
        target=Target.RUNNING,
        timeout=timeout,
        idle_timeout=idle_timeout,
        on_timeout=on_timeout,
    )


def starting(*, timeout: timedelta = HOUR, on_timeout: OnTimeout = OnTimeout.PAUSE) -> Deadlines:
    queued = queue(wanted(timeout=timeout, on_timeout=on_timeout), NOON, wait=5 * MINUTE)
    return admit(queued, NOON)


def running(
    *,
    timeout: timedelta = HOUR,
    idle_timeout: timedelta | None = None,
    on_timeout: OnTimeout = OnTimeout.PAUSE,
) -> Deadlines:
    row = wanted(timeout=timeout, idle_timeout=idle_timeout, on_timeout=on_timeout)
    return start(admit(row, NOON), NOON)


def paused(*, timeout: timedelta = HOUR, after: timedelta = 20 * MINUTE) -> Deadlines:
    return pause(running(timeout=timeout), NOON + after)
