from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import func, or_, select, union

from sandbox_server.db.models import Sandbox, Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.git.bare import TaskRepositories

_KEPT_FOR = timedelta(hours=1)
"""Longer than any push may last, which may still be forwarded when its sandbox has ended."""


class EndedScratch:
    """Removes the scratch repositories of this server whose task or sandbox has ended."""

    def __init__(self, sessions: Sessions, repositories: TaskRepositories) -> None:
        self._sessions = sessions
        self._repositories = repositories

    async def make_room_for(self, work_id: str) -> None:
        """Remove what nobody uses any more, before another scratch repository is made."""
        old = self._repositories.list_ids(unchanged_for=_KEPT_FOR)
        if not old or self._repositories.has(work_id):
            return
        for ended in set(old) - await self._find_in_use(old):
            await self._repositories.remove(ended)

    async def _find_in_use(self, ids: Collection[str]) -> set[str]:
        since = func.clock_timestamp() - _KEPT_FOR
        in_use = union(
            *(
                select(kind.id).where(
                    kind.id.in_(ids), or_(kind.ended_at.is_(None), kind.ended_at > since)
                )
                for kind in (Sandbox, Task)
            )
        )
        async with without_transaction(self._sessions) as session:
            return set(await session.scalars(in_use))
