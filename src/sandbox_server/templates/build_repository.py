from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.domain.errors import TemplateNotFound
from sandbox_server.templates.build_log import BuildLog

_now = func.clock_timestamp()


class TemplateBuildRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def request(
        self, template_id: str, backend: str, *, force: bool, digest: str | None = None
    ) -> None:
        """Request a build at a backend, replacing an earlier one; a ready build stays in use."""
        reset = {
            "force": force,
            "digest": digest,
            "state": "building",
            "state_reason": None,
            "backend_build_id": None,
            "requested_at": _now,
            "started_at": None,
            "entries_read": 0,
            "log_head": "",
            "log_tail": "",
            "log_size": 0,
        }
        upsert = insert(TemplateBuild).values(
            template_id=template_id, backend=backend, force=force, digest=digest
        )
        await self._session.execute(
            upsert.on_conflict_do_update(
                index_elements=[TemplateBuild.template_id, TemplateBuild.backend],
                set_={**reset, "number": TemplateBuild.number + 1},
            )
        )

    async def find(
        self, template_id: str, backend: str
    ) -> tuple[Template, TemplateBuild, datetime] | None:
        """Find a build of any tenant with its template and the database's time."""
        found = await self._session.execute(
            select(Template, TemplateBuild, _now)
            .join(TemplateBuild)
            .where(Template.id == template_id, TemplateBuild.backend == backend)
        )
        row = found.one_or_none()
        if row is None:
            return None
        template, build, now = row
        return template, build, now

    async def get(self, template: Template, backend: str) -> TemplateBuild:
        row = await self._session.get(TemplateBuild, (template.id, backend))
        if row is None:
            raise TemplateNotFound(f"{template.name} on {backend}")
        return row

    async def list_of(self, template_ids: Collection[str]) -> Sequence[TemplateBuild]:
        """List the builds of these templates, by backend."""
        of_these = TemplateBuild.template_id.in_(template_ids)
        return (
            await self._session.scalars(
                select(TemplateBuild).where(of_these).order_by(TemplateBuild.backend)
            )
        ).all()

    async def update(self, build: TemplateBuild, **values: Any) -> None:
        """Update a build unless another one was requested since."""
        await self._session.execute(
            update(TemplateBuild)
            .where(
                TemplateBuild.template_id == build.template_id,
                TemplateBuild.backend == build.backend,
                TemplateBuild.number == build.number,
            )
            .values(values)
        )

    async def update_log(self, build: TemplateBuild, log: BuildLog, *, entries_read: int) -> None:
        await self.update(
            build,
            log_head=log.head,
            log_tail=log.tail,
            log_size=log.size,
            entries_read=entries_read,
        )

    async def mark_ready(self, build: TemplateBuild, **size: int | None) -> None:
        await self.update(
            build, state="ready", state_reason=None, ready_at=_now, seen_at=_now, **size
        )

    async def remove(self, build: TemplateBuild) -> None:
        await self._session.execute(
            delete(TemplateBuild).where(
                TemplateBuild.template_id == build.template_id,
                TemplateBuild.backend == build.backend,
            )
        )


def log_of(build: TemplateBuild) -> BuildLog:
    return BuildLog(head=build.log_head, tail=build.log_tail, size=build.log_size)
