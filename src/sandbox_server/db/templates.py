from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Snapshot, Template, TemplateBuild


class TemplateRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_places(self, name: str, *, tenant_id: str) -> Sequence[str] | None:
        """Find the backends at which a template is ready; None is that nothing is known of that name.

        A tenant's own template hides the one of the same name that is everybody's.
        """
        rows = await self._session.execute(
            select(Template.tenant_id, TemplateBuild.backend, TemplateBuild.state)
            .join(TemplateBuild, isouter=True)
            .where(Template.name == name)
            .where(or_(Template.tenant_id == tenant_id, Template.tenant_id.is_(None)))
            .order_by(TemplateBuild.backend)
        )
        found = rows.all()
        if not found:
            return None
        own = [row for row in found if row.tenant_id is not None]
        return [row.backend for row in own or found if row.state == "ready"]

    async def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        """Find a snapshot, which is a template too, whoever's it is; it stays until the transaction ends."""
        return await self._session.scalar(
            select(Snapshot).where(Snapshot.id == snapshot_id).with_for_update(read=True)
        )
