from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.deadlines import NOTHING
from sandbox_server.domain.due import Due, next_due, waits_for_slot
from sandbox_server.domain.errors import BackendBusy, SandboxNotFound, Superseded
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State, serves
from sandbox_server.domain.steps import Act, ProviderState, next_step
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.providers.protocol.errors import PauseConflict, SandboxGone, SandboxNotRunning
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.outcomes import BUSY_FOR
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, deadlines_of
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.step_executor import StepExecutor

_TRIES = 5
"""After this many attempts a lost answer of the provider counts as a refusal."""

_AT_PROVIDER = frozenset({State.RUNNING, State.PAUSED})


class InlineJobs:
    """Runs the jobs of sandboxes in the process that has just committed a change to them."""

    def __init__(self, scheduler: SandboxQueueScheduler) -> None:
        self._scheduler = scheduler

    async def lease(self, session: AsyncSession, row: Sandbox) -> LeasedJob | None:
        """Lease the sandbox's job, if there is a step to execute and no other process holds the job."""
        if serves(row.state, row.target) or waits_for_slot(deadlines_of(row)):
            return None
        return await self._scheduler.lease(session, SANDBOX, row.id)

    def begin(self, job: LeasedJob | None, observed: Observation) -> None:
        """Begin the job after the commit; it continues if the caller disconnects."""
        if job is not None:
            self._scheduler.begin(job, context=observed)


class Reconciler:
    """Brings sandboxes to their targets: observes, decides on the next step, has it executed.

    Every step can be repeated, so any server continues where another one stopped.
    """

    def __init__(
        self,
        sessions: Sessions,
        calls: ProviderCalls,
        executor: StepExecutor,
        service_config: ServiceConfigWriter,
    ) -> None:
        self._sessions = sessions
        self._calls = calls
        self._executor = executor
        self._service_config = service_config

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Execute every step of a sandbox that is due; returns when the next one is.

        The job's context is the `Observation` of the process that leased it, if that committed the row.
        """
        known = job.context if isinstance(job.context, Observation) else None
        observed = known or await self._observe(job.subject)
        exhausted = job.attempts >= _TRIES
        try:
            try:
                return await self._reconcile(observed, exhausted=exhausted)
            except (SandboxGone, SandboxNotRunning):
                observed = await self._observe(job.subject, in_doubt=True)
                return await self._reconcile(observed, exhausted=exhausted)
        except (Superseded, SandboxNotFound):
            if observed is not None and observed.row.has_services:
                await self._service_config.invalidate(observed.row.id)
            return await self._after(NOTHING)
        except PauseConflict:
            raise  # counts as a failed attempt, since the conflict may never end
        except BackendBusy as busy:
            return await self._after(busy.retry_after or BUSY_FOR)

    async def correct(self, seen: Sandbox, now: datetime, found: ProviderSandbox | None) -> None:
        """Update a running or paused row to its state at the provider, unless it has changed since."""
        observed = Observation.of_commit(seen, now).with_found(found)
        step = next_step(seen.state, seen.target, observed.provider_state)
        if seen.state in _AT_PROVIDER and step.act is Act.RECORD:
            with suppress(Superseded, SandboxNotFound):
                await self._executor.record(observed, step, wake=True)

    async def _reconcile(self, observed: Observation | None, *, exhausted: bool) -> datetime | None:
        observed = observed and replace(observed, exhausted=exhausted)
        while observed is not None and observed.row.state not in ENDED:
            rules = self._calls.rules(observed.row)
            due = next_due(deadlines_of(observed.row), observed.now, rules=rules)
            if due is None or due.at > observed.now:
                return None if due is None else due.at
            observed = await self._execute_next(observed, due)
        if observed is not None:
            await self._clear_leftovers(observed)
        return None

    async def _execute_next(self, observed: Observation, due: Due) -> Observation:
        observed = await self._with_provider_state(observed)
        step = next_step(observed.row.state, due.target, observed.provider_state)
        return await self._executor.execute(observed, step, due)

    async def _clear_leftovers(self, observed: Observation) -> None:
        """Kill what a create with a late answer has left of a sandbox that has ended."""
        observed = await self._with_provider_state(observed)
        row = observed.row
        if next_step(row.state, row.target, observed.provider_state).act is Act.KILL:
            await self._executor.kill_leftovers(observed)

    async def _with_provider_state(self, observed: Observation) -> Observation:
        if observed.provider_state is not ProviderState.UNKNOWN:
            return observed
        return observed.with_found(await self._calls.find(observed.row))

    async def _observe(self, sandbox_id: str, *, in_doubt: bool = False) -> Observation | None:
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(sandbox_id)
        return None if found is None else Observation.of_read(*found, in_doubt=in_doubt)

    async def _after(self, duration: timedelta) -> datetime:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() + duration
