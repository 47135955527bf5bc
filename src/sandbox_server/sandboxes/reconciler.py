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
from sandbox_server.domain.steps import Act, Truth, next_step
from sandbox_server.providers.protocol.errors import PauseConflict, SandboxGone, SandboxNotRunning
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.observation import Look
from sandbox_server.sandboxes.outcomes import BUSY_FOR
from sandbox_server.sandboxes.provider_state import ask
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, deadlines_of
from sandbox_server.sandboxes.services.config import Furnishing
from sandbox_server.sandboxes.step_executor import Acts
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
        furnishing: Furnishing | None = None,
    ) -> None:
        furnishing = furnishing or Furnishing(sessions, backends, vault)
        self._sessions = sessions
        self._backends = backends
        self._furnishing = furnishing
        self._acts = Acts(sessions, backends, vault, changes, furnishing)
        self._handed_over: dict[str, Look] = {}

    def hand_over(self, row: Sandbox, now: datetime, *, fresh: bool = False) -> None:
        """Take a row from who has committed it at `now` and settles its job next.

        `fresh` is one that was let in by that: nobody can have begun to start or resume it.
        """
        look = Look.at_own if fresh else Look.at_found
        self._handed_over[row.id] = look(row, now)

    async def settle(self, job: LeasedJob) -> datetime | None:
        """Do what is due of a sandbox; gives when to look at it again."""
        look = self._handed_over.pop(job.subject, None) or await self._find(job.subject)
        exhausted = job.attempts >= _TRIES
        try:
            try:
                return await self._settle(look, exhausted=exhausted)
            except (SandboxGone, SandboxNotRunning):
                look = await self._find(job.subject, in_doubt=True)
                return await self._settle(look, exhausted=exhausted)
        except (Superseded, SandboxNotFound):
            if look is not None and look.row.has_services:
                await self._furnishing.doubt(look.row.id)
            return await self._after(NOTHING)
        except PauseConflict:
            raise  # a failed attempt, since it may never pass
        except BackendBusy as busy:
            return await self._after(busy.retry_after or BUSY_FOR)

    async def correct(self, seen: Sandbox, now: datetime, found: ProviderSandbox | None) -> None:
        """Let a row at rest say what its provider does, unless it has gone on since it was seen."""
        look = Look.at_own(seen, now).told(found)
        step = next_step(seen.state, seen.target, look.truth)
        if seen.state in _AT_PROVIDER and step.act is Act.RECORD:
            with suppress(Superseded, SandboxNotFound):
                await self._acts.record(look, step, wake=True)

    async def _settle(self, look: Look | None, *, exhausted: bool) -> datetime | None:
        look = look and replace(look, exhausted=exhausted)
        while look is not None and look.row.state not in ENDED:
            rules = self._backends.rules(look.row.backend)
            due = next_due(deadlines_of(look.row), look.now, rules=rules)
            if due is None or due.at > look.now:
                return None if due is None else due.at
            look = await self._attend(look, due)
        if look is not None:
            await self._clear_up(look)
        return None

    async def _attend(self, look: Look, due: Due) -> Look:
        if look.truth is Truth.UNKNOWN:
            look = look.told(await ask(self._backends, look.row))
        step = next_step(look.row.state, due.target, look.truth)
        return await self._acts.carry_out(look, step, due)

    async def _clear_up(self, look: Look) -> None:
        """Kill what a create that was answered late has left of a sandbox that has ended."""
        if look.truth is Truth.UNKNOWN:
            look = look.told(await ask(self._backends, look.row))
        if next_step(look.row.state, look.row.target, look.truth).act is Act.KILL:
            await self._acts.kill_leftovers(look)

    async def _find(self, sandbox_id: str, *, in_doubt: bool = False) -> Look | None:
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(sandbox_id)
        return None if found is None else Look.at_found(*found, in_doubt=in_doubt)

    async def _after(self, duration: timedelta) -> datetime:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() + duration
