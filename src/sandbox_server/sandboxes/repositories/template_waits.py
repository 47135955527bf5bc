from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Template, TemplateBuild
from sandbox_server.domain.state import State

_is_queued = Sandbox.ended_at.is_(None) & (Sandbox.state == State.QUEUED)


class TemplateWaitRepository:
    """Sandboxes that wait for a build of their template."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def hold_builds(self, template_id: str) -> None:
        """Lock the builds of a template, so that none ends before the transaction does."""
        builds = select(TemplateBuild.backend).where(TemplateBuild.template_id == template_id)
        await self._session.execute(builds.with_for_update(read=True))

    async def lock_waiting(self, template_id: str) -> Sequence[Sandbox]:
        """Lock the sandboxes that wait for the template, in the order of ids."""
        waiting = select(Sandbox).where(Sandbox.awaited_template_id == template_id, _is_queued)
        locked = waiting.order_by(Sandbox.id).with_for_update()
        return (await self._session.scalars(locked.execution_options(populate_existing=True))).all()

    async def list_failures(self, template_id: str) -> Mapping[str, str]:
        """List the reasons of failed builds by backend."""
        failed = await self._session.execute(
            select(TemplateBuild.backend, TemplateBuild.state_reason).where(
                TemplateBuild.template_id == template_id, TemplateBuild.state == "failed"
            )
        )
        return {backend: reason or "reason not recorded" for backend, reason in failed}

    async def list_under_way(
        self, template_ids: Collection[str]
    ) -> Sequence[tuple[str, TemplateBuild]]:
        """List the running builds, each with the name of its template."""
        rows = await self._session.execute(
            select(Template.name, TemplateBuild)
            .join(TemplateBuild)
            .where(Template.id.in_(template_ids), TemplateBuild.state == "building")
            .order_by(TemplateBuild.backend)
        )
        return [(name, build) for name, build in rows]
