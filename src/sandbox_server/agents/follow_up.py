import logging
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.agents.repository import AgentRunRepository
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions
from sandbox_server.domain.agents import FollowUp
from sandbox_server.domain.commands import COMMAND_LIVING
from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.domain.events import Cause
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import AGENT_RUN, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.targets import set_target

log = logging.getLogger(__name__)

_POLL_EVERY = timedelta(seconds=2)


class PauseAfterRun:
    """Pauses the sandbox after a run with `pause_after`, unless other commands are running in it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def work(self, job: LeasedJob) -> datetime | None:
        """Check whether a run has ended; returns when to check again."""
        async with self._sessions.begin() as session:
            run, now = await AgentRunRepository(session).find(job.subject)
            if run is not None and run.state in COMMAND_LIVING:
                return now + _POLL_EVERY
            if run is not None:
                with suppress(SandboxNotFound):
                    await _decide(session, run)
            await JobRepository(session).remove(AGENT_RUN, job.subject)
        return None


async def _decide(session: AsyncSession, run: Command) -> None:
    row, _ = await SandboxRepository(session).lock(run.sandbox_id, tenant_id=run.tenant_id)
    runs = AgentRunRepository(session)
    if row.state in ENDED or row.target is Target.GONE:
        return
    in_use = not await runs.is_only_one(run)
    outcome = FollowUp.IN_USE if in_use else FollowUp.PAUSED
    if not await runs.record_follow_up(run, outcome) or in_use or row.target is Target.PAUSED:
        return
    set_target(row, Target.PAUSED, _cause(run))
    await JobRepository(session).due(SANDBOX, row.id)
    log.info("paused after a run sandbox_id=%s run_id=%s", row.id, run.id)


def _cause(run: Command) -> TransitionCause:
    agent = (run.agent or {}).get("agent")
    return TransitionCause(
        cause=Cause.REQUEST, reason=f"Paused after an agent run ({agent}), as requested."
    )
