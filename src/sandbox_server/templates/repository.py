from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Sandbox, Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.errors import TemplateNotFound
from sandbox_server.domain.templates import KnownTemplate, Size, TemplateReference

_BackendRow = tuple[Any, ...]

_exists = Template.deleted_at.is_(None)


class TemplateRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_known(
        self, reference: TemplateReference, *, tenant_id: str
    ) -> KnownTemplate | None:
        """Find a template of the tenant, else a shared one, by its name or one of its ids.

        Other tenants' templates are not queried, so a miss reveals nothing about them.
        """
        if reference.namespace is not None:
            return None
        rows = await self._rows_of(Template.name == reference.name, tenant_id=tenant_id)
        if not rows:
            rows = await self._rows_of(_has_id(reference), tenant_id=tenant_id)
        own = [row for row in rows if row.tenant_id is not None]
        if own and not reference.is_plain:  # tenants' templates have no tags
            return None
        return _as_known(own or rows) if rows else None

    async def list_known(self, *, tenant_id: str) -> Sequence[KnownTemplate]:
        """List the tenant's own and the shared templates by name; an own one hides a shared one of its name."""
        query = _with_backends().where(_exists, _visible_to(tenant_id))
        rows: dict[str, list[Row[*_BackendRow]]] = {}
        for row in (await self._session.execute(query)).all():
            rows.setdefault(row.id, []).append(row)
        known = sorted(map(_as_known, rows.values()), key=lambda template: template.is_own)
        by_name = {template.name: template for template in known}
        return [by_name[name] for name in sorted(by_name)]

    async def _rows_of(
        self, wanted: ColumnElement[bool], *, tenant_id: str
    ) -> Sequence[Row[*_BackendRow]]:
        query = _with_backends().where(wanted, _exists, _visible_to(tenant_id))
        return (await self._session.execute(query)).all()

    async def list_private_ids(self, backend: str, provider_ids: Collection[str]) -> set[str]:
        """List which of these provider ids belong to templates or snapshots of tenants."""
        built = (
            select(TemplateBuild.backend_template_id)
            .join(Template)
            .where(
                Template.tenant_id.is_not(None),
                TemplateBuild.backend == backend,
                TemplateBuild.backend_template_id.in_(provider_ids),
            )
        )
        stem = func.split_part(Snapshot.backend_snapshot_id, ":", 1)
        taken = select(stem).where(Snapshot.backend == backend, stem.in_(provider_ids))
        found = await self._session.scalars(built.union(taken))
        return {provider_id for provider_id in found if provider_id is not None}

    async def find_built(self, template_id: str) -> KnownTemplate | None:
        """Find a template of any tenant that is not deleted."""
        query = _with_backends().where(Template.id == template_id, _exists)
        rows = (await self._session.execute(query)).all()
        return _as_known(rows) if rows else None

    async def find_snapshot(
        self, reference: TemplateReference, *, tenant_id: str
    ) -> Snapshot | None:
        """Find a snapshot of the tenant by our id and lock it for share until the transaction ends.

        Excludes the temporary snapshots of forks.
        """
        if not reference.is_plain:
            return None
        return await self._session.scalar(
            select(Snapshot)
            .where(
                Snapshot.id == reference.name,
                Snapshot.tenant_id == tenant_id,
                Snapshot.temporary.is_(False),
            )
            .with_for_update(read=True)
        )

    async def get_visible(self, name: str, *, tenant_id: str) -> Template:
        """Get the tenant's own template of this name, else the shared one."""
        row = await self._session.scalar(
            select(Template)
            .where(Template.name == name, _exists, _visible_to(tenant_id))
            .order_by(Template.tenant_id.asc().nulls_last())
            .limit(1)
        )
        if row is None:
            raise TemplateNotFound(name)
        return row

    async def get(self, template_id: str) -> Template:
        row = await self._session.get(Template, template_id)
        if row is None or row.deleted_at is not None:
            raise TemplateNotFound(template_id)
        return row

    async def lock(self, template_id: str) -> Template | None:
        """Lock the row, if it still exists, until the transaction ends."""
        locked = select(Template).where(Template.id == template_id).with_for_update()
        return await self._session.scalar(locked.execution_options(populate_existing=True))

    async def list_own(self, tenant_id: str) -> Sequence[Template]:
        """List the tenant's own templates, and block additions until the transaction ends."""
        await self._session.execute(
            select(Tenant.id).where(Tenant.id == tenant_id).with_for_update()
        )
        own = select(Template).where(Template.tenant_id == tenant_id, _exists)
        return (await self._session.scalars(own)).all()

    async def list_page(
        self, tenant_id: str, *, limit: int, before: str | None = None
    ) -> Sequence[Template]:
        """List the tenant's own and the shared templates, newest first."""
        query = select(Template).where(_exists, _visible_to(tenant_id))
        if before is not None:
            query = query.where(Template.id < before)
        return (await self._session.scalars(query.order_by(Template.id.desc()).limit(limit))).all()

    async def add(self, row: Template) -> None:
        self._session.add(row)
        await self._session.flush()

    async def mark_deleted(self, row: Template) -> None:
        row.deleted_at = await self._session.scalar(select(func.clock_timestamp()))

    async def is_needed(self, template_id: str) -> bool:
        """Return whether a sandbox created from it has not ended."""
        dependent = select(Sandbox.id).where(
            Sandbox.template_id == template_id, Sandbox.ended_at.is_(None)
        )
        return await self._session.scalar(dependent.limit(1)) is not None

    async def remove_unless_built(self, template_id: str) -> None:
        """Remove the template if no provider has a build of it."""
        built = exists().where(TemplateBuild.template_id == Template.id)
        await self._session.execute(delete(Template).where(Template.id == template_id, ~built))


def _has_id(reference: TemplateReference) -> ColumnElement[bool]:
    built_as = select(TemplateBuild.template_id).where(
        TemplateBuild.backend_template_id == reference.id
    )
    return or_(Template.id == reference.id, Template.id.in_(built_as))


def _visible_to(tenant_id: str) -> ColumnElement[bool]:
    return or_(Template.tenant_id == tenant_id, Template.tenant_id.is_(None))


def _with_backends() -> Select[*_BackendRow]:
    here = and_(TemplateBuild.template_id == Template.id, TemplateBuild.backend == Backend.name)
    return (
        select(
            Template.id,
            Template.name.label("template_name"),
            Template.tenant_id,
            Template.created_at,
            Template.has_services,
            Template.capabilities,
            Backend.name,
            Backend.templates_at,
            TemplateBuild.state,
            TemplateBuild.ready_at,
            TemplateBuild.cpu_count,
            TemplateBuild.memory_mb,
        )
        .select_from(Template)
        .join(Backend, true())
        .outerjoin(TemplateBuild, here)
        .order_by(Backend.name)
    )


def _as_known(rows: Sequence[Row[*_BackendRow]]) -> KnownTemplate:
    return KnownTemplate(
        id=rows[0].id,
        name=rows[0].template_name,
        is_own=rows[0].tenant_id is not None,
        sizes={
            row.name: Size(cpu_count=row.cpu_count, memory_mb=row.memory_mb)
            for row in rows
            if row.ready_at is not None or _may_exist(row)
        },
        has_services=rows[0].has_services,
        capabilities=frozenset(rows[0].capabilities),
        building=frozenset(
            row.name for row in rows if row.ready_at is None and row.state == "building"
        ),
    )


def _may_exist(row: Row[*_BackendRow]) -> bool:
    """Return whether a backend may have this shared template: it was not listed since the template became known."""
    listed_since = row.templates_at is not None and row.templates_at > row.created_at
    return row.tenant_id is None and row.state is None and not listed_since
