"""Browser sessions: their states, and when and why they end.

pending -> running -> completed     released, closed by its driver, or its sandbox was deleted
│         └─────> timed_out     at its deadline, or nobody connected in time
└───────────────> error         no sandbox, or the sandbox failed
"""

import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CONNECT_WITHIN = timedelta(minutes=5)
"""A session without any driver until then ends."""

GRACE = timedelta(seconds=10)
"""After the last driver has left, a session without `keep_alive` ends this much later."""

SHORTEST, LONGEST = timedelta(seconds=60), timedelta(seconds=21600)

BROWSER_SESSION_PREFIX = "browser-session/"
"""The `session_id` of a session's sandbox is this, and the id of the session."""

SESSION_PATTERN = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z"


class SessionState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    COMPLETED = "completed"


SESSION_ENDED = frozenset({SessionState.ERROR, SessionState.TIMED_OUT, SessionState.COMPLETED})


@dataclass(frozen=True, kw_only=True)
class SessionDeadlines:
    """The instants that decide when a session ends by itself; None: not before something else happens."""

    keep_alive: bool
    connect_by: datetime | None = None  # until a driver has connected
    expires_at: datetime | None = None
    left_at: datetime | None = None  # when the last driver left; None while there is one
    driven_until: datetime | None = None  # until when a server vouches for a connected driver


@dataclass(frozen=True)
class SessionEnd:
    """How a session ends, and why."""

    state: SessionState
    reason: str
    at: datetime


def next_end(row: SessionDeadlines) -> SessionEnd | None:
    """Find the earliest end that is known; at or before now it is due."""
    return min(_ends(row), key=lambda end: end.at, default=None)


def _ends(row: SessionDeadlines) -> Iterator[SessionEnd]:
    if row.connect_by is not None:
        minutes = CONNECT_WITHIN // timedelta(minutes=1)
        reason = f"The browser session ended: no driver connected within {minutes} minutes."
        yield SessionEnd(SessionState.TIMED_OUT, reason, row.connect_by)
    if row.expires_at is not None:
        reason = "The browser session ended at its timeout."
        yield SessionEnd(SessionState.TIMED_OUT, reason, row.expires_at)
    left_at = row.left_at or row.driven_until
    if left_at is not None and not row.keep_alive:
        reason = "The browser session ended: its last driver disconnected."
        yield SessionEnd(SessionState.COMPLETED, reason, left_at + GRACE)


def new_session_id() -> str:
    """Generate a UUID of version 7: sessions are listed by it, newest first."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10))
    number = number & ~(0xF << 76) | (7 << 76)
    number = number & ~(3 << 62) | (2 << 62)
    return str(uuid.UUID(int=number))


def is_session_id(text: str) -> bool:
    return re.match(SESSION_PATTERN, text) is not None


def downloads_directory(session_id: str) -> str:
    """Name the directory in the sandbox that receives the downloads of a session."""
    return f"/home/user/downloads/{session_id}"
