from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.events import Cause, entered
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.placement import PlacementDecision
from sandbox_server.domain.requests import ForkRequest, SandboxRequest
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.sandboxes.admission import Admission, require_queue_slot
from sandbox_server.sandboxes.direct_admission import DirectAdmission
from sandbox_server.sandboxes.inline_jobs import InlineJobs
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.repositories.direct_admission import DirectAdmissionRepository, fresh
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository, deadlines_of
from sandbox_server.sandboxes.services.sealed import open_envs, seal_envs
from sandbox_server.sandboxes.template_lookup import Offer
from sandbox_server.vault import Vault

_COPIED = (
    *("tenant_id", "agent_type", "user_id", "labels", "resources", "network", "volumes"),
    *("timeout", "on_timeout", "idle_timeout", "auto_resume", "priority", "has_services"),
)


@dataclass(frozen=True)
class Begun:
    """A new row, and its job if this process has it; `begin` once both are committed."""

    row: Sandbox
    now: datetime
    job: LeasedJob | None = None


class Creation:
    """Writes down new sandboxes, with a place for those that there is room for."""

    def __init__(
        self,
        own_work: InlineJobs,
        admission: Admission,
        arrivals: DirectAdmission,
        placement: Placement,
        vault: Vault,
    ) -> None:
        self._own_work = own_work
        self._admission = admission
        self._arrivals = arrivals
        self._placement = placement
        self._vault = vault

    async def add(
        self,
        session: AsyncSession,
        caller: Caller,
        wanted: SandboxRequest,
        *,
        sandbox_id: str,
        offer: Offer | None = None,
    ) -> Begun:
        """Write down a sandbox; without room for it it waits in the queue."""
        tenants = DirectAdmissionRepository(session)
        tenant, is_let_in, now = await tenants.find_tenant(caller.tenant_id)
        place = await self._placement.place(session, tenant, wanted, offer=offer)
        wish = _cause(caller, "It was asked for.")
        row = self._row(caller, wanted, place, sandbox_id=sandbox_id, wish=wish)
        fresh(row, now, queue_timeout=wanted.queue_timeout)
        if is_let_in and await self._arrivals.let_in(session, row, now):
            return Begun(row, now, await self._own_work.take(session, row))
        await SandboxRepository(session).add(row)
        if not is_let_in:
            await self._admission.admit(session, place.candidates, own=sandbox_id)
        if row.state is State.QUEUED:
            await self._line_up(session, row, wish)
        return Begun(row, now, await self._own_work.take(session, row))

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
        """Write down a copy of a sandbox; no backend may have it until there is what it is made from."""
        wish = _cause(caller, f"It is a copy of {source.id}, which is being taken.")
        row = Sandbox(
            **{name: getattr(source, name) for name in _COPIED},
            id=sandbox_id,
            template=snapshot_id,
            candidates=[],
            state=State.QUEUED,
            target=Target.RUNNING,
            wish=wish.document(),
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
        await SandboxRepository(session).add(row)
        await self._line_up(session, row, wish)
        return row

    def begin(self, begun: Begun) -> None:
        self._own_work.begin(begun.row, begun.now, begun.job, admitted=True)

    def _row(
        self,
        caller: Caller,
        wanted: SandboxRequest,
        place: PlacementDecision,
        *,
        sandbox_id: str,
        wish: TransitionCause,
    ) -> Sandbox:
        return Sandbox(
            id=sandbox_id,
            tenant_id=caller.tenant_id,
            template=place.template,
            template_id=place.template_id,
            candidates=list(place.candidates),
            agent_type=wanted.agent_type,
            user_id=wanted.user_id,
            session_id=wanted.session_id,
            labels=dict(wanted.metadata),
            envs_sealed=seal_envs(self._vault, sandbox_id, wanted.secrets()),
            resources=dict(place.resources),
            has_services=place.has_services or bool(wanted.mcp_servers),
            template_note=place.template_note,
            awaited_template_id=place.awaited_template_id,
            awaited_backends=list(place.awaited_backends),
            network=dict(wanted.network),
            volumes=dict(wanted.volumes),
            state=State.QUEUED,
            target=Target.RUNNING,
            wish=wish.document(),
            priority=min(wanted.priority, caller.max_priority),
            timeout=wanted.timeout or place.defaults.timeout,
            idle_timeout=wanted.idle_timeout or place.defaults.idle_timeout,
            on_timeout=wanted.on_timeout or place.defaults.on_timeout,
            auto_resume=wanted.auto_resume,
        )

    async def _line_up(self, session: AsyncSession, row: Sandbox, wish: TransitionCause) -> None:
        await require_queue_slot(session, row.tenant_id)
        if row.queue_expires_at is not None:
            await JobRepository(session).due(SANDBOX, row.id, row.queue_expires_at)
        queued = entered(
            deadlines_of(row),
            sandbox_id=row.id,
            cause=wish.cause,
            actor=wish.actor,
            reason=wish.reason,
        )
        await EventRepository(session).append(row.tenant_id, queued)


def _cause(caller: Caller, reason: str) -> TransitionCause:
    return TransitionCause(cause=Cause.REQUEST, actor=caller.actor, reason=reason)
