from dataclasses import replace

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Snapshot, Tenant
from sandbox_server.domain.capabilities import (
    NOTHING_DECLARED,
    DeclaredCapabilities,
    require_capabilities,
    select_template,
)
from sandbox_server.domain.errors import InvalidRequest, TemplateNotFound
from sandbox_server.domain.placement import (
    PlacementDecision,
    at_able,
    choose,
    is_ready,
    of_template,
    with_limits,
)
from sandbox_server.domain.requests import Defaults, PreparedSnapshot, SandboxRequest
from sandbox_server.domain.templates import KnownTemplate, TemplateReference
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.repositories.template_waits import TemplateWaitRepository
from sandbox_server.templates.capabilities import also_declared, with_declared
from sandbox_server.templates.lookup import Offer, require_offered
from sandbox_server.templates.repository import TemplateRepository

SERVER_DEFAULTS = Defaults()


class Placement:
    """Decides which backends may have a sandbox; admission chooses one of them."""

    def __init__(
        self,
        backends: Backends,
        *,
        defaults: Defaults = SERVER_DEFAULTS,
        declared: DeclaredCapabilities = NOTHING_DECLARED,
    ) -> None:
        self._backends = backends
        self._overflow = {name: known.overflow_to for name, known in backends.items()}
        self._limited = {
            name: known.client.capabilities
            for name, known in backends.items()
            if known.client.capabilities is not None
        }
        self._defaults = defaults
        self._declared = declared

    async def decide(
        self,
        session: AsyncSession,
        tenant: Tenant,
        request: SandboxRequest,
        *,
        offer: Offer | None = None,
    ) -> PlacementDecision:
        """Find the candidate backends of a sandbox, and its template.

        Backends that are down or drained are included, since they may be back when it is admitted.
        Raises `TemplateNotRecorded` if providers have to be asked first.
        """
        decision = await self._decide(session, tenant, request, offer=offer)
        require_capabilities(decision.template, decision.capabilities, decision.wanted)
        decision = with_limits(decision, self._limited)
        if request.prepared is None:
            return decision
        return await _at_prepared(session, tenant, decision, request.prepared)

    async def _decide(
        self,
        session: AsyncSession,
        tenant: Tenant,
        request: SandboxRequest,
        *,
        offer: Offer | None = None,
    ) -> PlacementDecision:
        request = request.with_section(self._defaults.overridden(tenant.defaults))
        if request.template is not None:
            request = replace(request, template=str(_parse(request.template)))
        decision = self._choose(tenant, request)
        if decision.wanted and request.template is None:
            selected = await self._select_template(session, tenant, decision)
            request = replace(request, capabilities=decision.wanted)
            decision = self._choose(tenant, request, selected=selected)
        reference = _parse(decision.template)
        snapshot = await TemplateRepository(session).find_snapshot(reference, tenant_id=tenant.id)
        if snapshot is not None:
            return _at_snapshot(decision, snapshot, request)
        known = await self._find_known(session, tenant, reference)
        if decision.meanwhile is not None and not (known and is_ready(decision, known)):
            decision = _meanwhile(decision, known)
            reference = _parse(decision.template)
            known = await self._find_known(session, tenant, reference)
        if known is None:
            return self._at_offering(decision, reference, offer)
        is_anywhere = known.is_own or known.sizes or known.building
        if not is_anywhere and known.name in self._declared.bundled:
            raise TemplateNotFound(known.name, is_bundled=True)
        decision = replace(decision, template=str(replace(reference, name=known.name)))
        narrowed = of_template(decision, known)
        if narrowed.awaited_template_id is None:
            return narrowed
        # The build may have ended since, and its server released the waiting sandboxes before this one was visible.
        await TemplateWaitRepository(session).hold_builds(narrowed.awaited_template_id)
        known = await self._find_known(session, tenant, reference)
        if known is None:
            raise TemplateNotFound(decision.template)
        return of_template(decision, known)

    def _choose(
        self, tenant: Tenant, request: SandboxRequest, *, selected: str | None = None
    ) -> PlacementDecision:
        decision = choose(
            request,
            defaults=self._defaults.overridden(tenant.defaults),
            rules=tenant.rules,
            overflow=self._overflow,
            selected=selected,
        )
        return at_able(decision, request, self._limited)

    async def _select_template(
        self, session: AsyncSession, tenant: Tenant, decision: PlacementDecision
    ) -> str:
        if decision.configured is not None:
            return str(_parse(decision.configured))
        recorded = await TemplateRepository(session).list_known(tenant_id=tenant.id)
        return select_template(
            with_declared(recorded, self._backends, self._declared),
            decision.wanted,
            candidates=decision.candidates,
            preferred=decision.preferred,
            declared=self._declared,
        )

    async def _find_known(
        self, session: AsyncSession, tenant: Tenant, reference: TemplateReference
    ) -> KnownTemplate | None:
        known = await TemplateRepository(session).find_known(reference, tenant_id=tenant.id)
        return None if known is None else also_declared(known, self._backends)

    def _at_offering(
        self, decision: PlacementDecision, reference: TemplateReference, offer: Offer | None
    ) -> PlacementDecision:
        """Place a sandbox of an unrecorded template at the backends that offer it."""
        there = require_offered(
            reference, decision.candidates, backends=self._backends, offer=offer
        )
        return replace(
            decision,
            template=str(reference),
            candidates=there,
            has_services=self._declared.has_services(reference.name, is_public=True),
            capabilities=self._declared.of(reference.name, is_public=True)
            or self._backends.offered(reference.name),
        )


def _parse(template: str) -> TemplateReference:
    reference = TemplateReference.parse(template)
    if reference is None:
        raise TemplateNotFound(template)
    return reference


def _meanwhile(decision: PlacementDecision, known: KnownTemplate | None) -> PlacementDecision:
    assert decision.meanwhile is not None
    is_built = known is not None and not known.building.isdisjoint(decision.candidates)
    state = "is being built" if is_built else "is not ready"
    note = (
        f"The default template {decision.template!r} {state}, so this sandbox is created from "
        f"{decision.meanwhile!r}. See GET /v1/templates/{decision.template} for the progress."
    )
    return replace(decision, template=decision.meanwhile, template_note=note)


async def _at_prepared(
    session: AsyncSession, tenant: Tenant, decision: PlacementDecision, prepared: PreparedSnapshot
) -> PlacementDecision:
    """Start from a prepared snapshot of the template, if it is at the first candidate and that one has room.

    The snapshot is locked for share: it is deleted after the sandbox is known to need it, or is not used.
    """
    if not decision.candidates or decision.template != prepared.template:
        return decision
    first = decision.candidates[0]
    snapshot = await TemplateRepository(session).find_snapshot(
        TemplateReference(name=prepared.snapshot_id), tenant_id=tenant.id
    )
    if snapshot is None or snapshot.state != "ready" or snapshot.backend != first:
        return decision
    if len(decision.candidates) > 1 and not await _has_room(session, first):
        return decision
    return replace(
        decision,
        template=snapshot.id,
        template_id=None,
        candidates=(first,),
        has_services=snapshot.has_services,
        capabilities=frozenset(snapshot.capabilities),
    )


async def _has_room(session: AsyncSession, backend: str) -> bool:
    there = select(Backend.name).where(
        Backend.name == backend,
        Backend.drained.is_(False),
        Backend.state != "down",
        or_(Backend.busy_until.is_(None), Backend.busy_until < func.clock_timestamp()),
    )
    return await session.scalar(there) is not None


def _at_snapshot(
    decision: PlacementDecision, snapshot: Snapshot, request: SandboxRequest
) -> PlacementDecision:
    if snapshot.state != "ready":
        raise InvalidRequest(f"The snapshot {snapshot.id} is {snapshot.state}.")
    if request.backend not in {None, snapshot.backend}:
        raise InvalidRequest(
            f"The snapshot {snapshot.id} is at {snapshot.backend}, not at {request.backend}."
        )
    return replace(
        decision,
        template=snapshot.id,
        candidates=(snapshot.backend,),
        has_services=snapshot.has_services,
        capabilities=frozenset(snapshot.capabilities),
    )
