from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import GitPush, GitPushPart, Task
from sandbox_server.domain.tasks.pushes import PushState

_now = func.clock_timestamp()


class PushRepository:
    """The SQL of pushes."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def clock(self) -> datetime:
        now: datetime = (await self._session.execute(select(_now))).scalar_one()
        return now

    async def get(self, push_id: str) -> GitPush | None:
        return await self._session.get(GitPush, push_id)

    async def find_kept(self, repository_id: str, branch: str) -> GitPush | None:
        return await self._session.scalar(
            select(GitPush).where(
                GitPush.repository_id == repository_id,
                GitPush.branch == branch,
                GitPush.state == PushState.KEPT,
            )
        )

    async def add(self, push: GitPush, parts: Sequence[GitPushPart] = ()) -> None:
        self._session.add(push)
        await self._session.flush()
        self._session.add_all(parts)

    async def end(self, push_id: str, state: PushState, *, reason: str | None = None) -> None:
        """End a push that was kept; only one that the forge refuses keeps its content."""
        await self._session.execute(
            update(GitPush)
            .where(GitPush.id == push_id, GitPush.state == PushState.KEPT)
            .values(state=state, reason=reason, ended_at=_now)
        )
        if state is not PushState.REFUSED:
            await self._session.execute(delete(GitPushPart).where(GitPushPart.push_id == push_id))

    async def supersede(self, repository_id: str, branch: str) -> None:
        """End the push of a branch that is kept, since a later one has its place."""
        kept = await self.find_kept(repository_id, branch)
        if kept is not None:
            await self.end(kept.id, PushState.SUPERSEDED)

    async def note_attempt(self, push_id: str, *, reason: str) -> int:
        """Count an attempt that did not reach the forge; returns the number of attempts."""
        attempts: int | None = await self._session.scalar(
            update(GitPush)
            .where(GitPush.id == push_id)
            .values(attempts=GitPush.attempts + 1, reason=reason)
            .returning(GitPush.attempts)
        )
        return attempts or 0

    async def list_parts(self, push_id: str) -> Sequence[GitPushPart]:
        found = await self._session.scalars(
            select(GitPushPart).where(GitPushPart.push_id == push_id).order_by(GitPushPart.part)
        )
        return found.all()

    async def note_published(self, task_id: str, sha: str) -> None:
        """Record on the task that this commit of its branch is its own."""
        await self._session.execute(
            update(Task)
            .where(Task.id == task_id)
            .values(pushed_shas=func.array_append(Task.pushed_shas, sha), published_sha=sha)
        )
