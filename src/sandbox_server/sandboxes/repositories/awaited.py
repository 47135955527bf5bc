from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, Template, TemplateBuild
from sandbox_server.domain.state import State

_stands_aside = Sandbox.ended_at.is_(None) & (Sandbox.state == State.QUEUED)


class TemplateWaitRepository:
    """Sandboxes that no backend may have before their template is built."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def hold_builds(self, template_id: str) -> None:
        """Let no build of the template come to its end before the transaction does."""
        builds = select(TemplateBuild.backend).where(TemplateBuild.template_id == template_id)
        await self._session.execute(builds.with_for_update(read=True))

    async def lock_waiting(self, template_id: str) -> Sequence[Sandbox]:
        """Hold, by id, those that wait for the template."""
        waiting = select(Sandbox).where(Sandbox.awaited_template_id == template_id, _stands_aside)
        locked = waiting.order_by(Sandbox.id).with_for_update()
        return (await self._session.scalars(locked.execution_options(populate_existing=True))).all()

    async def list_failures(self, template_id: str) -> Mapping[str, str]:
        """Say why the template is not ready, by backend."""
        failed = await self._session.execute(
            select(TemplateBuild.backend, TemplateBuild.state_reason).where(
                TemplateBuild.template_id == template_id, TemplateBuild.state == "failed"
            )
        )
        return {backend: reason or "reason not recorded" for backend, reason in failed}

    async def list_under_way(
        self, template_ids: Collection[str]
    ) -> Sequence[tuple[str, TemplateBuild]]:
        """List the builds that are not over, each with the name of its template."""
        rows = await self._session.execute(
            select(Template.name, TemplateBuild)
            .join(TemplateBuild)
            .where(Template.id.in_(template_ids), TemplateBuild.state == "building")
            .order_by(TemplateBuild.backend)
        )
        return [(name, build) for name, build in rows]
