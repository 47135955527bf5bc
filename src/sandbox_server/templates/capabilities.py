from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.capabilities import (
    DeclaredCapabilities,
    require_capabilities,
    select_template,
)
from sandbox_server.domain.errors import TemplateNotFound
from sandbox_server.domain.templates import KnownTemplate, Size, TemplateReference
from sandbox_server.providers.registry import Backends
from sandbox_server.templates.lookup import Offer, TemplateLookup, require_offered
from sandbox_server.templates.repository import TemplateRepository


@dataclass(frozen=True, kw_only=True)
class TemplateAvailability:
    """A template with its capabilities, and its state at each backend."""

    name: str
    is_own: bool
    capabilities: frozenset[str]
    backends: Mapping[str, str]
    """`ready`, `building` or `missing`."""


class TemplateCapabilities:
    """Which capabilities the templates of a tenant have, and where."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        declared: DeclaredCapabilities,
        lookup: TemplateLookup,
    ) -> None:
        self._sessions = sessions
        self.backends = backends
        self._declared = declared
        self._lookup = lookup

    async def capabilities_of(self, template: str, *, tenant_id: str) -> frozenset[str]:
        """Return the capabilities of a template or snapshot by name or id; none if it is unknown.

        Those of an existing sandbox are in its row.
        """
        reference = TemplateReference.parse(template)
        if reference is None:
            return frozenset()
        async with without_transaction(self._sessions) as session:
            templates = TemplateRepository(session)
            snapshot = await templates.find_snapshot(reference, tenant_id=tenant_id)
            if snapshot is not None:
                return frozenset(snapshot.capabilities)
            known = await templates.find_known(reference, tenant_id=tenant_id)
        if known is not None:
            return known.capabilities
        is_bundled = reference.name in self._declared.bundled
        return self._declared.of(reference.name, is_public=not is_bundled)

    async def require(
        self, template: str, wanted: frozenset[str], *, backend: str | None, tenant_id: str
    ) -> None:
        """Check that a template exists, here or at a provider, and has the capabilities; bundled ones need no build."""
        reference = TemplateReference.parse(template)
        if reference is None:
            raise TemplateNotFound(template)
        candidates = list(self.backends) if backend is None else [backend]

        async def check(offer: Offer | None) -> None:
            async with without_transaction(self._sessions) as session:
                templates = TemplateRepository(session)
                snapshot = await templates.find_snapshot(reference, tenant_id=tenant_id)
                known = await templates.find_known(reference, tenant_id=tenant_id)
            if snapshot is None and known is None and reference.name not in self._declared.bundled:
                require_offered(reference, candidates, backends=self.backends, offer=offer)

        await self._lookup.attempt(check)
        has = await self.capabilities_of(template, tenant_id=tenant_id)
        require_capabilities(str(reference), has, wanted)

    async def require_any(self, wanted: Collection[str], *, tenant_id: str) -> None:
        """Check that a template has the capabilities, whether or not it is built."""
        if any(each.issuperset(wanted) for each in self._declared.bundled.values()):
            return
        async with without_transaction(self._sessions) as session:
            recorded = await TemplateRepository(session).list_known(tenant_id=tenant_id)
        known = with_declared(recorded, self.backends, self._declared)
        select_template(known, wanted, candidates=list(self.backends), declared=self._declared)

    async def list_available(self, caller: Caller) -> list[TemplateAvailability]:
        """List the caller's templates by name, with the bundled ones that are not built anywhere."""
        async with without_transaction(self._sessions) as session:
            recorded = await TemplateRepository(session).list_known(tenant_id=caller.tenant_id)
        known = with_declared(recorded, self.backends, self._declared)
        names = {template.name for template in known}
        unbuilt = [
            KnownTemplate(name=name, id="", is_own=False, sizes={}, capabilities=capabilities)
            for name, capabilities in self._declared.bundled.items()
            if name not in names
        ]
        return [
            self._availability(template)
            for template in sorted((*known, *unbuilt), key=lambda template: template.name)
        ]

    def _availability(self, template: KnownTemplate) -> TemplateAvailability:
        return TemplateAvailability(
            name=template.name,
            is_own=template.is_own,
            capabilities=template.capabilities,
            backends={name: _state(template, name) for name in self.backends},
        )


def with_declared(
    recorded: Sequence[KnownTemplate], backends: Backends, declared: DeclaredCapabilities
) -> Sequence[KnownTemplate]:
    """Add the templates that only the settings of backends name, which their providers do not list."""
    names = {template.name for template in recorded}
    named = {template for _, known in backends.items() for template in known.templates} - names
    return [
        *(also_declared(template, backends) for template in recorded),
        *(
            KnownTemplate(
                id="",
                name=name,
                is_own=False,
                sizes={backend: Size() for backend in backends.declaring(name)},
                capabilities=declared.of(name) or backends.offered(name),
            )
            for name in sorted(named)
        ),
    ]


def also_declared(template: KnownTemplate, backends: Backends) -> KnownTemplate:
    """Add the backends whose settings name a shared template that others have built."""
    declaring = backends.declaring(template.name) - template.sizes.keys()
    if template.is_own or not declaring:
        return template
    sizes = {**template.sizes, **{name: Size() for name in declaring}}
    return replace(template, sizes=sizes)


def _state(template: KnownTemplate, backend: str) -> str:
    if backend in template.sizes:
        return "ready"
    return "building" if backend in template.building else "missing"
