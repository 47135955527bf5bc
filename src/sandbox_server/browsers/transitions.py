"""Changes of locked sessions. The caller commits them together with the job that follows from them."""

from datetime import datetime

from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.domain.computers.browsers import (
    CONNECT_WITHIN,
    SESSION_ENDED,
    SessionDeadlines,
    SessionEnd,
    SessionState,
)
from sandbox_server.domain.events import Cause
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.sandboxes.repositories.sandboxes import cause_of

# A sandbox that ended for one of these reasons ended its session in the same way.
_TIMED_OUT = frozenset({Cause.EXPIRY, Cause.IDLE, Cause.RETENTION})
_NEVER_RAN = frozenset({Cause.QUEUE_DEADLINE, Cause.ROOM, Cause.PROVIDER})


def deadlines_of(row: BrowserSession, *, driven_until: datetime | None = None) -> SessionDeadlines:
    return SessionDeadlines(
        keep_alive=row.keep_alive,
        connect_by=row.connect_by,
        expires_at=row.expires_at,
        left_at=row.left_at,
        driven_until=driven_until,
    )


def begin(row: BrowserSession, now: datetime) -> None:
    """Start a session whose sandbox runs; its timeout begins here."""
    row.state, row.started_at, row.updated_at = SessionState.RUNNING, now, now
    row.expires_at = now + row.timeout
    row.connect_by = min(now + CONNECT_WITHIN, row.expires_at)


def end(row: BrowserSession, state: SessionState, reason: str, now: datetime) -> None:
    """End a session; one that has ended stays as it is."""
    if row.state in SESSION_ENDED:
        return
    row.state, row.state_reason = state, reason
    row.ended_at = row.updated_at = now
    row.connect_by = row.left_at = None


def end_of_sandbox(sandbox: Sandbox | None, now: datetime) -> SessionEnd | None:
    """Find how a session ends because its sandbox has ended, or is to be deleted."""
    if sandbox is None:
        return SessionEnd(SessionState.ERROR, "The sandbox of the session no longer exists.", now)
    if sandbox.state not in ENDED and sandbox.target is not Target.GONE:
        return None
    cause = cause_of(sandbox)
    reason = f"The sandbox of the session ended: {sandbox.state_reason or cause.reason}"
    if sandbox.state is State.FAILED or cause.cause in _NEVER_RAN:
        return SessionEnd(SessionState.ERROR, reason, now)
    timed_out = cause.cause in _TIMED_OUT
    return SessionEnd(SessionState.TIMED_OUT if timed_out else SessionState.COMPLETED, reason, now)
