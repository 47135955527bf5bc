from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    InvalidRequest,
    NameTaken,
    TemplateNotFound,
    TooManyTemplates,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.placement import having
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.templates import Definition, TemplateReference, name_at_provider
from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b.build_request import check
from sandbox_server.providers.registry import Backends
from sandbox_server.templates.build_repository import TemplateBuildRepository
from sandbox_server.templates.definitions import decrypt_definition, encrypt_definition
from sandbox_server.templates.lookup import Offer, TemplateLookup, require_offered
from sandbox_server.templates.repository import TemplateRepository
from sandbox_server.vault import Vault

MAX_TEMPLATES = 200


@dataclass(frozen=True)
class CatalogEntry:
    """A template with its build at each backend."""

    template: Template
    builds: Sequence[TemplateBuild]


class Catalog:
    """The templates that callers can use by name: their tenant's own and the shared ones."""

    def __init__(
        self, sessions: Sessions, backends: Backends, vault: Vault, lookup: TemplateLookup
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._vault = vault
        self._lookup = lookup

    async def create(
        self,
        caller: Caller,
        name: str,
        definition: Definition,
        *,
        backends: Sequence[str] | None,
        force: bool,
        idempotency: Idempotency | None,
    ) -> CatalogEntry:
        """Create a template and request its builds."""
        template_id = new_id()

        async def add(offer: Offer | None) -> CatalogEntry:
            async with self._sessions.begin() as session:
                created_id = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource="template", resource_id=template_id
                )
                if created_id == template_id:
                    await self._require_quota(session, caller, name)
                    row = Template(id=created_id, tenant_id=caller.tenant_id, name=name)
                    await TemplateRepository(session).add(row)
                    targets = await self._define(session, row, definition, backends, offer)
                    await _request_builds(session, row, targets, force=force)
                row = await TemplateRepository(session).get(created_id)
                return await _entry(session, row)

        return await self._lookup.attempt(add)

    async def rebuild(
        self,
        caller: Caller,
        name: str,
        definition: Definition | None,
        *,
        backends: Sequence[str] | None,
        force: bool,
        idempotency: Idempotency | None,
    ) -> CatalogEntry:
        """Request new builds of a template, with its own or a new definition."""
        request_id = new_id()

        async def add(offer: Offer | None) -> CatalogEntry:
            async with self._sessions.begin() as session:
                claimed_id = await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource="template-build", resource_id=request_id
                )
                row = await self._lock_own(session, caller, name)
                if claimed_id == request_id:
                    built = await TemplateBuildRepository(session).list_of([row.id])
                    targets = await self._define(
                        session,
                        row,
                        definition or decrypt_definition(self._vault, row),
                        backends or [build.backend for build in built],
                        offer,
                    )
                    await _request_builds(session, row, targets, force=force)
                return await _entry(session, row)

        return await self._lookup.attempt(add)

    async def get(self, caller: Caller, name: str) -> CatalogEntry:
        async with without_transaction(self._sessions) as session:
            row = await TemplateRepository(session).get_visible(name, tenant_id=caller.tenant_id)
            return await _entry(session, row)

    async def get_build(self, caller: Caller, name: str, backend: str) -> TemplateBuild:
        async with without_transaction(self._sessions) as session:
            row = await TemplateRepository(session).get_visible(name, tenant_id=caller.tenant_id)
            return await TemplateBuildRepository(session).get(row, backend)

    async def list_page(
        self, caller: Caller, *, limit: int, before: str | None
    ) -> Sequence[CatalogEntry]:
        async with without_transaction(self._sessions) as session:
            rows = await TemplateRepository(session).list_page(
                caller.tenant_id, limit=limit, before=before
            )
            builds = await _builds_of(session, [row.id for row in rows])
            return [CatalogEntry(row, builds[row.id]) for row in rows]

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a template; the provider's copies are removed once no sandbox uses them."""
        async with self._sessions.begin() as session:
            row = await self._lock_own(session, caller, name)
            await TemplateRepository(session).mark_deleted(row)
            for build in await TemplateBuildRepository(session).list_of([row.id]):
                await JobRepository(session).due(TEMPLATE_BUILD, f"{row.id}/{build.backend}")
            await TemplateRepository(session).remove_unless_built(row.id)

    async def _require_quota(self, session: AsyncSession, caller: Caller, name: str) -> None:
        own = await TemplateRepository(session).list_own(caller.tenant_id)
        if any(template.name == name for template in own):
            raise NameTaken("template", name)
        if len(own) >= MAX_TEMPLATES:
            raise TooManyTemplates(MAX_TEMPLATES)

    async def _lock_own(self, session: AsyncSession, caller: Caller, name: str) -> Template:
        templates = TemplateRepository(session)
        visible = await templates.get_visible(name, tenant_id=caller.tenant_id)
        row = await templates.lock(visible.id)
        if row is None or row.deleted_at is not None:
            raise TemplateNotFound(name)
        if row.tenant_id is None:
            raise InvalidRequest(
                f"The template {name!r} is shared. It can be changed only where it was built."
            )
        return row

    async def _define(
        self,
        session: AsyncSession,
        row: Template,
        definition: Definition,
        backends: Sequence[str] | None,
        offer: Offer | None,
    ) -> Sequence[str]:
        """Store the definition; returns the backends that can build it."""
        check(definition)
        self._require_known(backends or ())
        targets = list(backends or self._backends.building())
        row.has_services, row.capabilities = False, []
        if definition.from_template is not None:
            definition, targets = await self._resolve_base(
                session, row, definition, targets, allow_subset=not backends, offer=offer
            )
        if definition.capabilities is not None:
            row.capabilities = sorted(set(definition.capabilities))
        row.definition_sealed = encrypt_definition(self._vault, row.id, definition)
        return targets

    def _require_known(self, backends: Collection[str]) -> None:
        for name in backends:
            if name not in self._backends:
                raise InvalidRequest(f"Unknown backend: {name!r}.")
            if name not in self._backends.building():
                raise InvalidRequest(f"The backend {name!r} cannot build templates.")

    async def _resolve_base(
        self,
        session: AsyncSession,
        row: Template,
        definition: Definition,
        backends: list[str],
        *,
        allow_subset: bool,
        offer: Offer | None,
    ) -> tuple[Definition, list[str]]:
        """Replace the base template's name by its name at the providers; returns the backends that have it."""
        assert definition.from_template is not None
        assert row.tenant_id is not None
        reference = TemplateReference.parse(definition.from_template)
        if reference is None:
            raise TemplateNotFound(definition.from_template)
        templates = TemplateRepository(session)
        if await templates.find_snapshot(reference, tenant_id=row.tenant_id) is not None:
            raise InvalidRequest("A snapshot cannot be the base of a template.")
        known = await templates.find_known(reference, tenant_id=row.tenant_id)
        if known is None:
            base = str(reference)
            having_base = require_offered(reference, backends, backends=self._backends, offer=offer)
        else:
            row.has_services, row.capabilities = known.has_services, sorted(known.capabilities)
            base = str(replace(reference, name=known.name))
            having_base = having(backends, list(known.sizes), template=base)
        if len(having_base) < len(backends) and not allow_subset:
            available = ", ".join(sorted(having_base))
            raise InvalidRequest(f"The template {base!r} is available only on {available}.")
        if known is not None and known.is_own:
            base = name_at_provider(known.id)
        return replace(definition, from_template=base), list(having_base)


async def _request_builds(
    session: AsyncSession, row: Template, backends: Sequence[str], *, force: bool
) -> None:
    for backend in sorted(set(backends)):
        await TemplateBuildRepository(session).request(row.id, backend, force=force)
        await JobRepository(session).due(TEMPLATE_BUILD, f"{row.id}/{backend}")


async def _entry(session: AsyncSession, row: Template) -> CatalogEntry:
    return CatalogEntry(row, (await _builds_of(session, [row.id]))[row.id])


async def _builds_of(
    session: AsyncSession, template_ids: Sequence[str]
) -> Mapping[str, Sequence[TemplateBuild]]:
    builds: dict[str, list[TemplateBuild]] = {template_id: [] for template_id in template_ids}
    for build in await TemplateBuildRepository(session).list_of(template_ids):
        builds[build.template_id].append(build)
    return builds
