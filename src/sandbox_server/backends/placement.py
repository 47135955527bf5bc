import re
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.backends.registry import Backends
from sandbox_server.db.awaited import AwaitedRepository
from sandbox_server.db.models import Snapshot, Tenant
from sandbox_server.db.templates import TemplateRepository
from sandbox_server.domain.errors import InvalidRequest, TemplateNotFound
from sandbox_server.domain.placing import Place, choose, is_ready, of_template
from sandbox_server.domain.requests import Defaults, SandboxRequest
from sandbox_server.domain.templates import KnownTemplate, is_called_as_with_services

SERVER_DEFAULTS = Defaults()

# A snapshot has our id as its name at its provider, where that may stand in a namespace and before a tag.
_ID = re.compile(r"(?<![a-z0-9_-])[a-z0-9]{20}(?![a-z0-9_-])")


class Placement:
    """Decides where a sandbox may live. Which of those it is, and when, is decided where there is room."""

    def __init__(self, backends: Backends, *, defaults: Defaults = SERVER_DEFAULTS) -> None:
        self._overflow = {name: known.overflow_to for name, known in backends.items()}
        self._defaults = defaults

    async def place(self, session: AsyncSession, tenant: Tenant, asked: SandboxRequest) -> Place:
        """Find the backends that may have a sandbox, with the template to make it from.

        Those that are down or drained are among them, since they may be back when its turn comes.
        """
        place = choose(
            asked,
            defaults=self._defaults.overridden(tenant.defaults),
            rules=tenant.rules,
            overflow=self._overflow,
        )
        templates = TemplateRepository(session)
        for id_ in _ID.findall(place.template.lower()):
            snapshot = await templates.find_snapshot(id_)
            if snapshot is not None:
                return _at_snapshot(place, snapshot, asked, tenant=tenant)
        known = await templates.find_known(place.template, tenant_id=tenant.id)
        if place.meanwhile is not None and not (known and is_ready(place, known)):
            place = _meanwhile(place, known)
            known = await templates.find_known(place.template, tenant_id=tenant.id)
        if known is None:  # its provider may know the name
            return replace(place, has_services=is_called_as_with_services(place.template))
        placed = of_template(place, known)
        if placed.awaited_template_id is None:
            return placed
        # Its build may have ended since, and whoever ended it has looked for those who wait before this one could be seen.
        await AwaitedRepository(session).hold_builds(placed.awaited_template_id)
        known = await templates.find_known(place.template, tenant_id=tenant.id)
        return place if known is None else of_template(place, known)


def _meanwhile(place: Place, known: KnownTemplate | None) -> Place:
    assert place.meanwhile is not None
    is_built = known is not None and not known.building.isdisjoint(place.candidates)
    state = "is being built" if is_built else "is not ready"
    note = (
        f"The default template {place.template!r} {state}, so this sandbox is made from "
        f"{place.meanwhile!r}. GET /v1/templates/{place.template} says how far it is."
    )
    return replace(place, template=place.meanwhile, template_note=note)


def _at_snapshot(
    place: Place, snapshot: Snapshot, asked: SandboxRequest, *, tenant: Tenant
) -> Place:
    if snapshot.tenant_id != tenant.id:
        raise TemplateNotFound(place.template)
    if snapshot.state != "ready":
        raise InvalidRequest(f"The snapshot {snapshot.id} is {snapshot.state}.")
    if asked.backend not in {None, snapshot.backend}:
        raise InvalidRequest(
            f"The snapshot {snapshot.id} is at {snapshot.backend}, not at {asked.backend}."
        )
    return replace(
        place,
        template=snapshot.id,
        candidates=(snapshot.backend,),
        has_services=snapshot.has_services,
    )
