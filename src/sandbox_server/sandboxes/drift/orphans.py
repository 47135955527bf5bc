import logging
import re
from collections.abc import Sequence
from contextlib import suppress

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain import deadlines
from sandbox_server.domain.errors import SandboxNotFound, Superseded
from sandbox_server.domain.events import Cause
from sandbox_server.domain.ids import PATTERN
from sandbox_server.domain.requests import Defaults
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backend
from sandbox_server.sandboxes.drift.for_each_limited import for_each_limited
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    deadlines_of,
    set_deadlines,
    state_event,
)
from sandbox_server.sandboxes.transitions import Transition, Transitions

log = logging.getLogger(__name__)

_ADOPTED = TransitionCause(
    cause=Cause.RECOVERY,
    reason="Adopted: the provider has the sandbox but no record existed, as after a database restore.",
)
_STARTED = TransitionCause(
    cause=Cause.RECOVERY,
    reason="Found at the provider although the record was queued, as after a database restore.",
)


class OrphanResolver:
    """Assigns sandboxes without a matching row to their rows or tenants.

    Orphans without a known tenant are reported and kept: after a restore of the database nobody's work may be deleted.
    """

    def __init__(
        self, sessions: Sessions, reconciler: Reconciler, transitions: Transitions
    ) -> None:
        self._sessions = sessions
        self._reconciler = reconciler
        self._transitions = transitions
        self._reported: set[str] = set()

    async def resolve(self, backend: Backend, unknown: Sequence[ProviderSandbox]) -> int:
        """Match each with its row, or add a row; returns how many remain."""
        if not unknown:
            return 0
        ids = {sandbox.sandbox_id for sandbox in unknown if sandbox.sandbox_id is not None}
        async with self._sessions() as session:
            repository = DriftRepository(session)
            rows = await repository.find_all(ids)
            tenants = await repository.find_tenants(
                {sandbox.tenant_id for sandbox in unknown if sandbox.tenant_id is not None}
            )
        unowned: list[ProviderSandbox] = []

        async def resolve(one: ProviderSandbox) -> None:
            row = rows.get(one.sandbox_id or "")
            tenant = tenants.get(one.tenant_id or "")
            if row is not None:
                if not await self._match_row(backend.name, row, one):
                    unowned.append(one)
            elif tenant is not None and re.match(PATTERN, one.sandbox_id or ""):
                await self._adopt(backend, tenant, one)
            else:
                unowned.append(one)

        await for_each_limited(unknown, resolve)
        self._report(backend.name, unowned)
        return len(unowned)

    async def _match_row(self, backend: str, seen: Sandbox, found: ProviderSandbox) -> bool:
        """Match an orphan with its row; False if the row is at another backend."""
        if seen.backend not in {None, backend}:
            return False
        if seen.state in ENDED:  # a create that finished after its row had ended
            await self._wake(backend, seen)
        elif seen.state is State.QUEUED:
            started = Transition(
                change=deadlines.admit,
                cause=_STARTED,
                values={
                    "backend": backend,
                    "backend_sandbox_id": found.id,
                    "tried_at": found.started_at,
                },
            )
            with suppress(Superseded, SandboxNotFound):
                await self._transitions.commit(seen, started, wake=True)
        return True

    async def _wake(self, backend: str, seen: Sandbox) -> None:
        async with self._sessions.begin() as session:
            row, _ = await SandboxRepository(session).lock(seen.id)
            row.backend = backend
            await JobRepository(session).due(SANDBOX, row.id)

    async def _adopt(self, backend: Backend, tenant: Tenant, found: ProviderSandbox) -> None:
        row = _row_for(tenant, backend.name, found)
        async with self._sessions.begin() as session:
            now = await SandboxRepository(session).clock()
            set_deadlines(row, deadlines.pause(deadlines_of(row), now))
            if not await DriftRepository(session).adopt(row):
                return
            await JobRepository(session).due(SANDBOX, row.id)
            await EventRepository(session).append(row.tenant_id, state_event(row, _ADOPTED))
        log.warning("adopted sandbox=%s backend=%s id=%s", row.id, backend.name, found.id)
        await self._reconciler.correct(row, now, found)

    def _report(self, backend: str, unowned: Sequence[ProviderSandbox]) -> None:
        for one in unowned:
            if one.id not in self._reported:
                self._reported.add(one.id)
                log.warning(
                    "orphan backend=%s id=%s sandbox=%s tenant=%s",
                    *(backend, one.id, one.sandbox_id, one.tenant_id),
                )


def _row_for(tenant: Tenant, backend: str, found: ProviderSandbox) -> Sandbox:
    # Inserted as paused, whatever its state is: a correction or a resume adds what a paused row lacks.
    defaults = Defaults().overridden(tenant.defaults)
    return Sandbox(
        id=found.sandbox_id,
        tenant_id=tenant.id,
        template=found.template,
        backend=backend,
        backend_sandbox_id=found.id,
        candidates=[backend],
        state=State.PAUSED,
        state_reason=_ADOPTED.reason,
        target=Target.PAUSED,
        wish=_ADOPTED.document(),
        timeout=defaults.timeout,
        on_timeout=defaults.on_timeout,
        idle_timeout=defaults.idle_timeout,
        generation=0,
    )
