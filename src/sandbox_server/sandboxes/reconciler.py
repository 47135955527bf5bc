from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.deadlines import NOTHING
from sandbox_server.domain.due import Due, next_due
from sandbox_server.domain.errors import BackendBusy, SandboxNotFound, Superseded
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State
from sandbox_server.domain.steps import Act, ProviderState, next_step
from sandbox_server.providers.protocol.errors import PauseConflict, SandboxGone, SandboxNotRunning
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.outcomes import BUSY_FOR
from sandbox_server.sandboxes.provider_state import ask
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, deadlines_of
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.step_executor import StepExecutor
from sandbox_server.vault import Vault

_TRIES = 5
"""How often a provider may lose its answer to the same request, before that is taken for a refusal."""

_AT_PROVIDER = frozenset({State.RUNNING, State.PAUSED})


class Reconciler:
    """Makes sandboxes what is wanted of them, one step after the other, whoever began it."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        changes: Changes | None = None,
        *,
        service_config: ServiceConfigWriter | None = None,
    ) -> None:
        service_config = service_config or ServiceConfigWriter(sessions, backends, vault)
        self._sessions = sessions
        self._backends = backends
        self._service_config = service_config
        self._executor = StepExecutor(sessions, backends, vault, changes, service_config)
        self._handed_over: dict[str, Observation] = {}

    def hand_over(self, row: Sandbox, now: datetime, *, fresh: bool = False) -> None:
        """Take a row from who has committed it at `now` and settles its job next.

        `fresh` is one that was let in by that: nobody can have begun to start or resume it.
        """
        observed = Observation.at_own if fresh else Observation.at_found
        self._handed_over[row.id] = observed(row, now)

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Do what is due of a sandbox; gives when to look at it again."""
        observed = self._handed_over.pop(job.subject, None) or await self._find(job.subject)
        exhausted = job.attempts >= _TRIES
        try:
            try:
                return await self._reconcile(observed, exhausted=exhausted)
            except (SandboxGone, SandboxNotRunning):
                observed = await self._find(job.subject, in_doubt=True)
                return await self._reconcile(observed, exhausted=exhausted)
        except (Superseded, SandboxNotFound):
            if observed is not None and observed.row.has_services:
                await self._service_config.invalidate(observed.row.id)
            return await self._after(NOTHING)
        except PauseConflict:
            raise  # a failed attempt, since it may never pass
        except BackendBusy as busy:
            return await self._after(busy.retry_after or BUSY_FOR)

    async def correct(self, seen: Sandbox, now: datetime, found: ProviderSandbox | None) -> None:
        """Let a row at rest say what its provider does, unless it has gone on since it was seen."""
        observed = Observation.at_own(seen, now).with_found(found)
        step = next_step(seen.state, seen.target, observed.provider_state)
        if seen.state in _AT_PROVIDER and step.act is Act.RECORD:
            with suppress(Superseded, SandboxNotFound):
                await self._executor.record(observed, step, wake=True)

    async def _reconcile(self, observed: Observation | None, *, exhausted: bool) -> datetime | None:
        observed = observed and replace(observed, exhausted=exhausted)
        while observed is not None and observed.row.state not in ENDED:
            rules = self._backends.rules(observed.row.backend)
            due = next_due(deadlines_of(observed.row), observed.now, rules=rules)
            if due is None or due.at > observed.now:
                return None if due is None else due.at
            observed = await self._attend(observed, due)
        if observed is not None:
            await self._clear_up(observed)
        return None

    async def _attend(self, observed: Observation, due: Due) -> Observation:
        if observed.provider_state is ProviderState.UNKNOWN:
            observed = observed.with_found(await ask(self._backends, observed.row))
        step = next_step(observed.row.state, due.target, observed.provider_state)
        return await self._executor.execute(observed, step, due)

    async def _clear_up(self, observed: Observation) -> None:
        """Kill what a create that was answered late has left of a sandbox that has ended."""
        if observed.provider_state is ProviderState.UNKNOWN:
            observed = observed.with_found(await ask(self._backends, observed.row))
        if (
            next_step(observed.row.state, observed.row.target, observed.provider_state).act
            is Act.KILL
        ):
            await self._executor.kill_leftovers(observed)

    async def _find(self, sandbox_id: str, *, in_doubt: bool = False) -> Observation | None:
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(sandbox_id)
        return None if found is None else Observation.at_found(*found, in_doubt=in_doubt)

    async def _after(self, duration: timedelta) -> datetime:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() + duration
