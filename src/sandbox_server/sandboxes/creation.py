from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.defaults import ComputerDefaults
from sandbox_server.domain.events import Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.placement import PlacementDecision
from sandbox_server.domain.requests import ForkRequest, Idempotency, SandboxRequest
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import CHECKOUT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.reconciler import InlineJobs
from sandbox_server.sandboxes.repositories.direct_admission import (
    DirectAdmissionRepository,
    set_defaults,
)
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.services.encrypted_columns import open_computers, open_envs, seal_envs
from sandbox_server.templates.lookup import Offer, TemplateLookup
from sandbox_server.vault import Vault

_COPIED = (
    *("tenant_id", "agent_type", "user_id", "labels", "resources", "network", "volumes"),
    *("timeout", "on_timeout", "idle_timeout", "auto_resume", "priority", "has_services"),
    "capabilities",
    "desktop",
)

Beside = Callable[[AsyncSession, str], Awaitable[None]]


@dataclass(frozen=True)
class AddedSandbox:
    """A new row, with its job if this process leased it; pass it to `begin` after the commit."""

    row: Sandbox
    now: datetime
    job: LeasedJob | None = None


@dataclass(frozen=True)
class SessionSandbox:
    """A session's sandbox, and whether this request created it."""

    row: Sandbox
    created: bool


class Creation:
    """Inserts new sandboxes and has them admitted."""

    def __init__(
        self,
        sessions: Sessions,
        jobs: InlineJobs,
        admission: Admission,
        placement: Placement,
        lookup: TemplateLookup,
        vault: Vault,
    ) -> None:
        self._sessions = sessions
        self._jobs = jobs
        self._admission = admission
        self._placement = placement
        self._lookup = lookup
        self._vault = vault

    async def create(
        self,
        caller: Caller,
        wanted: SandboxRequest,
        *,
        sandbox_id: str,
        idempotency: Idempotency | None,
        beside: Beside | None = None,
    ) -> tuple[str, AddedSandbox | None]:
        """Insert a sandbox; returns its id, or that of the one that the same request created before.

        `beside` inserts what belongs to the new sandbox, in the same transaction.
        """

        async def add(offer: Offer | None) -> tuple[str, AddedSandbox | None]:
            async with self._sessions.begin() as session:
                created = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource="sandbox", resource_id=sandbox_id
                )
                if created != sandbox_id:
                    return created, None
                added = await self.add(session, caller, wanted, sandbox_id=created, offer=offer)
                if beside is not None:
                    await beside(session, created)
                return created, added

        return await self._lookup.attempt(add)

    async def find_or_create(
        self, caller: Caller, session_id: str, wanted: SandboxRequest
    ) -> SessionSandbox:
        """Find the session's sandbox, or create it: one, however many requests on whichever servers."""
        async with without_transaction(self._sessions) as session:
            repository = SandboxRepository(session)
            found = await repository.find_of_session(caller.tenant_id, session_id)
        if found is not None:
            return SessionSandbox(found, created=False)
        return await self._lookup.attempt(
            lambda offer: self._find_or_create_locked(caller, session_id, wanted, offer)
        )

    async def _find_or_create_locked(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, offer: Offer | None
    ) -> SessionSandbox:
        async with self._sessions.begin() as session:
            repository = SandboxRepository(session)
            await repository.lock_session(caller.tenant_id, session_id)
            found = await repository.find_of_session(caller.tenant_id, session_id)
            if found is not None:
                return SessionSandbox(found, created=False)
            mine = replace(wanted, session_id=session_id)
            added = await self.add(session, caller, mine, sandbox_id=new_id(), offer=offer)
        self.begin(added)
        return SessionSandbox(added.row, created=True)

    async def add(
        self,
        session: AsyncSession,
        caller: Caller,
        wanted: SandboxRequest,
        *,
        sandbox_id: str,
        offer: Offer | None = None,
    ) -> AddedSandbox:
        """Insert a sandbox in the caller's transaction, and have it admitted."""
        tenants = DirectAdmissionRepository(session)
        tenant, quota_free, now = await tenants.find_tenant(caller.tenant_id)
        decision = await self._placement.decide(session, tenant, wanted, offer=offer)
        defaults = ComputerDefaults.of(open_computers(self._vault, tenant), wanted.agent_type)
        wanted = defaults.apply(
            wanted, capabilities=decision.capabilities, has_services=decision.has_services
        )
        row = self._row(caller, wanted, decision, sandbox_id=sandbox_id)
        set_defaults(row, now, queue_timeout=wanted.queue_timeout)
        await self._admission.add(session, row, now, quota_free=quota_free)
        if wanted.checkout is not None:
            await JobRepository(session).due(CHECKOUT, sandbox_id)
        return AddedSandbox(row, now, await self._jobs.lease(session, row))

    async def add_fork(
        self,
        session: AsyncSession,
        caller: Caller,
        source: Sandbox,
        wanted: ForkRequest,
        *,
        sandbox_id: str,
        snapshot_id: str,
    ) -> Sandbox:
        """Insert a fork, which no backend may have until its snapshot is ready."""
        cause = _requested(caller, f"Fork of {source.id}; its snapshot is being taken.")
        row = Sandbox(
            **{name: getattr(source, name) for name in _COPIED},
            id=sandbox_id,
            template=snapshot_id,
            candidates=[],
            state=State.QUEUED,
            target=Target.RUNNING,
            wish=cause.document(),
            session_id=wanted.session_id,
            envs_sealed=seal_envs(
                self._vault, sandbox_id, open_envs(self._vault, source.id, source.envs_sealed)
            ),
        )
        row.priority = min(row.priority, caller.max_priority)
        row.user_id = wanted.user_id or row.user_id
        row.timeout = wanted.timeout or row.timeout
        if wanted.metadata is not None:
            row.labels = dict(wanted.metadata)
        await self._admission.add_without_candidates(session, row)
        return row

    def begin(self, added: AddedSandbox) -> None:
        """Begin the job of a committed sandbox; it continues if the caller disconnects."""
        self._jobs.begin(added.job, Observation.of_commit(added.row, added.now))

    def _row(
        self,
        caller: Caller,
        wanted: SandboxRequest,
        decision: PlacementDecision,
        *,
        sandbox_id: str,
    ) -> Sandbox:
        cause = _requested(caller, "Created by API request.")
        return Sandbox(
            id=sandbox_id,
            tenant_id=caller.tenant_id,
            template=decision.template,
            template_id=decision.template_id,
            candidates=list(decision.candidates),
            agent_type=wanted.agent_type,
            user_id=wanted.user_id,
            session_id=wanted.session_id,
            labels=dict(wanted.metadata),
            envs_sealed=seal_envs(self._vault, sandbox_id, wanted.secrets()),
            resources=dict(decision.resources),
            has_services=decision.has_services or bool(wanted.mcp_servers),
            capabilities=sorted(decision.capabilities),
            template_note=decision.template_note,
            awaited_template_id=decision.awaited_template_id,
            awaited_backends=list(decision.awaited_backends),
            network=dict(wanted.network),
            volumes=dict(wanted.volumes),
            checkout=None if wanted.checkout is None else wanted.checkout.document(),
            desktop=None if wanted.desktop is None else dict(wanted.desktop),
            state=State.QUEUED,
            target=Target.RUNNING,
            wish=cause.document(),
            priority=min(wanted.priority, caller.max_priority),
            timeout=wanted.timeout or decision.defaults.timeout,
            idle_timeout=wanted.idle_timeout or decision.defaults.idle_timeout,
            on_timeout=wanted.on_timeout or decision.defaults.on_timeout,
            auto_resume=wanted.auto_resume,
        )


def _requested(caller: Caller, reason: str) -> TransitionCause:
    return TransitionCause(cause=Cause.REQUEST, actor=caller.actor, reason=reason)
