import logging
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.browsers import transitions
from sandbox_server.browsers.file_parts import remove_files
from sandbox_server.browsers.preparation import needs_preparation, proxies_id
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.computers.browsers import SESSION_ENDED, SessionState, next_end
from sandbox_server.domain.errors import BrowserSessionNotFound, SandboxError, SandboxNotFound
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


class SessionKeeper(Protocol):
    """Prepares the browser of a session, and keeps what outlives its sandbox."""

    async def prepare(self, row: BrowserSession) -> None:
        """Make the browser that of the session."""

    async def keep(self, row: BrowserSession) -> None:
        """Take files out of the sandbox of an ended session, as far as it still runs."""


class SessionReconciler:
    """Starts and ends sessions as their sandboxes, deadlines and drivers demand.

    A session and its sandbox end together: an ended sandbox ends its session, and the end of a session deletes its
    sandbox, once its files are kept. Each run of the job reads everything anew, so that it may be repeated after a crash.
    """

    def __init__(self, sessions: Sessions, keeper: SessionKeeper) -> None:
        self._sessions = sessions
        self._keeper = keeper

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Do what is due of a session; returns when something will be due again."""
        try:
            row, due, is_running = await self._advance(job.subject)
            if row.state is SessionState.PENDING and needs_preparation(row) and is_running:
                row, due, _ = await self._prepare(row)
            if row.state in SESSION_ENDED:
                await self._keeper.keep(row)
                await self._finish(row.id)
        except BrowserSessionNotFound:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(BROWSER_SESSION, job.subject)
            return None
        return due

    async def _advance(self, session_id: str) -> tuple[BrowserSession, datetime | None, bool]:
        async with self._sessions.begin() as session:
            repository = BrowserSessionRepository(session)
            row, now = await repository.lock(session_id)
            sandbox = await _lock_sandbox(session, row)
            driven_until = await repository.find_driven_until(session_id)
            advance(row, sandbox, now, driven_until=driven_until)
        if row.state in SESSION_ENDED:
            return row, None, False
        is_running = sandbox is not None and sandbox.state is State.RUNNING
        end = next_end(transitions.deadlines_of(row, driven_until=driven_until))
        looks_at = now + _LOOK_EVERY
        return row, looks_at if end is None else min(end.at, looks_at), is_running

    async def _prepare(self, row: BrowserSession) -> tuple[BrowserSession, datetime | None, bool]:
        """Prepare the browser, which may be repeated after a crash; a failure ends the session."""
        failure: str | None = None
        try:
            await self._keeper.prepare(row)
        except SandboxError as error:
            failure = f"The browser session could not start: {error}"
        async with self._sessions.begin() as session:
            row, now = await BrowserSessionRepository(session).lock(row.id)
            if failure is None:
                row.settings = {**row.settings, "is_prepared": True}
            else:
                transitions.end(row, SessionState.ERROR, failure, now)
        result = await self._advance(row.id)
        async with self._sessions.begin() as session:
            await SandboxRepository(session).announce(row.id)
        return result

    async def _finish(self, session_id: str) -> None:
        async with self._sessions.begin() as session:
            row, now = await BrowserSessionRepository(session).lock(session_id)
            await _delete_sandbox(session, row, await _lock_sandbox(session, row))
            row.finished_at = row.finished_at or now
            await remove_files(session, [proxies_id(row.id)])
            await JobRepository(session).remove(BROWSER_SESSION, row.id)


def advance(
    row: BrowserSession,
    sandbox: Sandbox | None,
    now: datetime,
    *,
    driven_until: datetime | None = None,
) -> None:
    """Bring a locked session to the state that its sandbox and its deadlines demand."""
    if row.state in SESSION_ENDED:
        return
    if (ended := transitions.end_of_sandbox(sandbox, now)) is not None:
        transitions.end(row, ended.state, ended.reason, now)
        return
    runs = sandbox is not None and sandbox.state is State.RUNNING
    if row.state is SessionState.PENDING and runs and not needs_preparation(row):
        transitions.begin(row, now)
    due = next_end(transitions.deadlines_of(row, driven_until=driven_until))
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
