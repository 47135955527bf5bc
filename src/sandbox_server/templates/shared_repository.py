from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Backend, Template, TemplateBuild
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.templates import Size, is_called_as_with_services

_now = func.clock_timestamp()
MISSING = "It is not at its provider any more."
# What is being built here, or could not be, is known better than from a list that tells of builds before it too.
_IS_OURS = TemplateBuild.digest.is_not(None) & (
    (TemplateBuild.state == "building")
    | ((TemplateBuild.state == "failed") & (TemplateBuild.state_reason != MISSING))
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A template that is at a provider; an id and a size have those that are ours there."""

    id: str | None = None
    size: Size = field(default_factory=Size)


class SharedTemplateRepository:
    """What providers have that no tenant had built here: everybody's."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(_now))).scalar_one()
        return now

    async def hold(self, name: str) -> Template:
        """Find or make the row of a template with services, and hold it until the transaction ends."""
        upsert = insert(Template).values(id=new_id(), name=name, has_services=True)
        held = upsert.on_conflict_do_update(
            index_elements=[Template.tenant_id, Template.name],
            index_where=Template.deleted_at.is_(None),
            set_={"has_services": True},
        )
        row: Template | None = await self._session.scalar(held.returning(Template))
        assert row is not None
        return row

    async def list_names(self) -> Sequence[str]:
        shared = select(Template.name).where(Template.tenant_id.is_(None))
        return (await self._session.scalars(shared.order_by(Template.name))).all()

    async def note_found(self, backend: str, found: Mapping[str, Found]) -> None:
        """Write down, by their names, the templates that a backend has."""
        for name in sorted(found):
            await self._session.execute(
                insert(Template)
                .values(id=new_id(), name=name, has_services=is_called_as_with_services(name))
                .on_conflict_do_nothing()
            )
        ids = await self._session.execute(
            select(Template.name, Template.id).where(
                Template.tenant_id.is_(None), Template.name.in_(found)
            )
        )
        for name, template_id in sorted(ids.all()):
            await self._note_one(backend, template_id, found[name])

    async def _note_one(self, backend: str, template_id: str, found: Found) -> None:
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

    async def note_missing(self, backend: str, *, since: datetime, ids: Collection[str]) -> None:
        """Mark what the backend had before, and does not have by now: everybody's, and tenants' but for these ids."""
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

    async def note_listed(self, backend: str, *, at: datetime) -> None:
        await self._session.execute(
            update(Backend).where(Backend.name == backend).values(templates_at=at)
        )

    async def forget_missing(self, *, after: timedelta) -> None:
        """Remove what was everybody's and has been at no backend for so long."""
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
