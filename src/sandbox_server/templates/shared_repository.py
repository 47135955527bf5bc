from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, case, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Template, TemplateBuild
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.templates import Size

_now = func.clock_timestamp()
MISSING = "It is not at its provider any more."
# For templates built here, the state of the build takes precedence over the provider's list, which includes older builds.
_IS_OURS = TemplateBuild.digest.is_not(None) & (
    (TemplateBuild.state == "building")
    | ((TemplateBuild.state == "failed") & (TemplateBuild.state_reason != MISSING))
)


@dataclass(frozen=True, kw_only=True)
class DiscoveredTemplate:
    """A template found at a provider; public templates of others have no id and size."""

    id: str | None = None
    size: Size = field(default_factory=Size)


class SharedTemplateRepository:
    """Shared templates: those of the providers that no tenant built here."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(_now))).scalar_one()
        return now

    async def lock_or_create(self, name: str, capabilities: Collection[str]) -> Template:
        """Find or create the row of a bundled template, and lock it until the transaction ends."""
        values: dict[str, Any] = {"has_services": True, "capabilities": sorted(capabilities)}
        insertion = insert(Template).values(id=new_id(), name=name, **values)
        upsert = insertion.on_conflict_do_update(
            index_elements=[Template.tenant_id, Template.name],
            index_where=Template.deleted_at.is_(None),
            set_=values,
        )
        row: Template | None = await self._session.scalar(upsert.returning(Template))
        assert row is not None
        return row

    async def list_names(self) -> Sequence[str]:
        shared = select(Template.name).where(Template.tenant_id.is_(None))
        return (await self._session.scalars(shared.order_by(Template.name))).all()

    async def declare(self, declared: DeclaredCapabilities) -> None:
        """Update the capabilities of shared templates; another version of the server may have stored them."""
        of_bundled = Template.tenant_id.is_(None) & Template.has_services
        for name, capabilities in sorted(declared.bundled.items()):
            await self._set_capabilities(of_bundled & (Template.name == name), capabilities)
        for name, capabilities in sorted(declared.settings.items()):
            is_meant = Template.tenant_id.is_(None) & (Template.name == name)
            await self._set_capabilities(is_meant, capabilities)

    async def _set_capabilities(
        self, where: ColumnElement[bool], capabilities: Collection[str]
    ) -> None:
        await self._session.execute(
            update(Template).where(where).values(capabilities=sorted(capabilities))
        )

    async def record_found(
        self,
        backend: str,
        found: Mapping[str, DiscoveredTemplate],
        declared: DeclaredCapabilities,
    ) -> None:
        """Store the templates that a backend has, by name."""
        for name in sorted(found):
            await self._session.execute(
                insert(Template)
                .values(
                    id=new_id(),
                    name=name,
                    has_services=declared.has_services(name, is_public=found[name].id is None),
                    capabilities=sorted(declared.of(name, is_public=found[name].id is None)),
                )
                .on_conflict_do_nothing()
            )
        ids = await self._session.execute(
            select(Template.name, Template.id).where(
                Template.tenant_id.is_(None), Template.name.in_(found)
            )
        )
        for name, template_id in sorted(ids.all()):
            await self._record(backend, template_id, found[name])

    async def _record(self, backend: str, template_id: str, found: DiscoveredTemplate) -> None:
        values: dict[str, Any] = {
            "backend_template_id": found.id,
            "state": "ready",
            "state_reason": None,
            "cpu_count": found.size.cpu_count,
            "memory_mb": found.size.memory_mb,
            "seen_at": _now,
        }
        added = insert(TemplateBuild).values(
            template_id=template_id, backend=backend, ready_at=_now, **values
        )
        await self._session.execute(
            added.on_conflict_do_update(
                index_elements=[TemplateBuild.template_id, TemplateBuild.backend],
                set_={**values, "ready_at": func.coalesce(TemplateBuild.ready_at, _now)},
                where=~_IS_OURS,
            )
        )
        await self._session.execute(
            update(TemplateBuild)
            .where(
                TemplateBuild.template_id == template_id, TemplateBuild.backend == backend, _IS_OURS
            )
            .values(seen_at=_now)
        )

    async def mark_missing(self, backend: str, *, since: datetime, ids: Collection[str]) -> None:
        """Mark templates that the backend no longer has: shared ones not seen `since`, tenants' ones not in `ids`."""
        is_shared = exists().where(
            Template.id == TemplateBuild.template_id, Template.tenant_id.is_(None)
        )
        seen = (is_shared & (TemplateBuild.seen_at >= since)) | (
            ~is_shared & TemplateBuild.backend_template_id.in_(ids)
        )
        gone = (TemplateBuild.backend == backend) & (TemplateBuild.ready_at < since) & ~seen
        await self._session.execute(
            update(TemplateBuild)
            .where(gone)
            .values(
                ready_at=None,
                state=case((TemplateBuild.state == "ready", "failed"), else_=TemplateBuild.state),
                state_reason=case(
                    (TemplateBuild.state == "ready", MISSING), else_=TemplateBuild.state_reason
                ),
            )
        )

    async def record_listing(self, backend: str, *, at: datetime) -> None:
        await self._session.execute(
            update(Backend).where(Backend.name == backend).values(templates_at=at)
        )

    async def remove_missing(self, *, after: timedelta) -> None:
        """Remove shared templates that no backend has had for this long."""
        is_shared = exists().where(
            Template.id == TemplateBuild.template_id, Template.tenant_id.is_(None)
        )
        await self._session.execute(
            delete(TemplateBuild).where(
                is_shared, TemplateBuild.ready_at.is_(None), TemplateBuild.seen_at < _now - after
            )
        )
        is_somewhere = exists().where(TemplateBuild.template_id == Template.id)
        await self._session.execute(
            delete(Template).where(Template.tenant_id.is_(None), ~is_somewhere)
        )
