import logging
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.browsers import transitions
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.computers.browsers import SESSION_ENDED, SessionState, next_end
from sandbox_server.domain.errors import BrowserSessionNotFound, SandboxNotFound
from sandbox_server.domain.events import Cause
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import BROWSER_SESSION, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.targets import set_target

log = logging.getLogger(__name__)

# Transitions of its sandbox wake a session's job; this is for what no transition announces.
_LOOK_EVERY = timedelta(minutes=5)

_CAUSES = {
    SessionState.TIMED_OUT: Cause.EXPIRY,
    SessionState.COMPLETED: Cause.REQUEST,
    SessionState.ERROR: Cause.PROVIDER,
}


class SessionReconciler:
    """Starts and ends sessions as their sandboxes, deadlines and drivers demand.

    A session and its sandbox end together: an ended sandbox ends its session, and the end of a session deletes its
    sandbox. Each run of the job reads everything anew, so that it may be repeated after a crash.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Do what is due of a session; returns when something will be due again."""
        try:
            async with self._sessions.begin() as session:
                row, now = await BrowserSessionRepository(session).lock(job.subject)
                return await self._advance(session, row, now)
        except BrowserSessionNotFound:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(BROWSER_SESSION, job.subject)
            return None

    async def _advance(
        self, session: AsyncSession, row: BrowserSession, now: datetime
    ) -> datetime | None:
        sandbox = await _lock_sandbox(session, row)
        advance(row, sandbox, now)
        if row.state in SESSION_ENDED:
            await _delete_sandbox(session, row, sandbox)
            await JobRepository(session).remove(BROWSER_SESSION, row.id)
            return None
        due = next_end(transitions.deadlines_of(row))
        looks_at = now + _LOOK_EVERY
        return looks_at if due is None else min(due.at, looks_at)


def advance(row: BrowserSession, sandbox: Sandbox | None, now: datetime) -> None:
    """Bring a locked session to the state that its sandbox and its deadlines demand."""
    if row.state in SESSION_ENDED:
        return
    if (ended := transitions.end_of_sandbox(sandbox, now)) is not None:
        transitions.end(row, ended.state, ended.reason, now)
        return
    if row.state is SessionState.PENDING and sandbox is not None and sandbox.state is State.RUNNING:
        transitions.begin(row, now)
    due = next_end(transitions.deadlines_of(row))
    if due is not None and due.at <= now:
        transitions.end(row, due.state, due.reason, now)


async def _lock_sandbox(session: AsyncSession, row: BrowserSession) -> Sandbox | None:
    try:
        return (await SandboxRepository(session).lock(row.sandbox_id))[0]
    except SandboxNotFound:
        return None


async def _delete_sandbox(
    session: AsyncSession, row: BrowserSession, sandbox: Sandbox | None
) -> None:
    if sandbox is None or sandbox.state in ENDED or sandbox.target is Target.GONE:
        return
    reason = row.state_reason or "The browser session ended."
    set_target(sandbox, Target.GONE, TransitionCause(cause=_CAUSES[row.state], reason=reason))
    await JobRepository(session).due(SANDBOX, sandbox.id)
    log.info("browser session ended session_id=%s sandbox_id=%s", row.id, sandbox.id)
