from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import (
    Forge,
    ForgeCheck,
    ForgeWrite,
    PullRequest,
    Repository,
    Task,
    TaskMessage,
    TaskRun,
)
from sandbox_server.domain.tasks.forges import CheckFacts
from sandbox_server.domain.tasks.stages import MessageOrigin, RunKind
from sandbox_server.tasks.outbox_repository import WriteOwner

_FROM_PULLS = (MessageOrigin.REVIEW, MessageOrigin.COMMENT)


@dataclass(frozen=True)
class FollowedPull:
    """A pull request with what it belongs to, as it was read."""

    pull: PullRequest
    task: Task
    repository: Repository
    forge: Forge
    now: datetime

    @property
    def number(self) -> int:
        return self.pull.number

    @property
    def owner(self) -> WriteOwner:
        """Say what writes about this pull request are done for."""
        return WriteOwner(
            forge_id=self.forge.id, repository_id=self.repository.id, task_id=self.task.id
        )


class FollowedPullRepository:
    """The SQL of pull requests, their checks, and the messages that came of them."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_followed(self, repository_id: str, number: int) -> FollowedPull | None:
        """Find a pull request of a task."""
        found = (
            select(PullRequest, Task, Repository, Forge, func.clock_timestamp())
            .join(Task, Task.id == PullRequest.task_id)
            .join(Repository, Repository.id == PullRequest.repository_id)
            .join(Forge, Forge.id == Repository.forge_id)
            .where(PullRequest.repository_id == repository_id, PullRequest.number == number)
        )
        row = (await self._session.execute(found)).one_or_none()
        return None if row is None else FollowedPull(*row)

    async def is_of_open_task(self, repository_id: str, number: int) -> bool:
        found = (
            select(Task.id)
            .join(PullRequest, PullRequest.task_id == Task.id)
            .where(
                PullRequest.repository_id == repository_id,
                PullRequest.number == number,
                Task.ended_at.is_(None),
            )
        )
        return await self._session.scalar(found) is not None

    async def list_numbers(
        self, repository_id: str, *, sha: str | None = None, ref: str | None = None
    ) -> Sequence[int]:
        """List open pull requests of tasks whose head is this commit, or whose head or base is this branch."""
        query = select(PullRequest.number).where(
            PullRequest.repository_id == repository_id,
            PullRequest.lifecycle == "open",
            PullRequest.task_id.is_not(None),
        )
        if sha is not None:
            query = query.where(PullRequest.head_sha == sha)
        if ref is not None:
            query = query.where(or_(PullRequest.head_ref == ref, PullRequest.base_ref == ref))
        return (await self._session.scalars(query)).all()

    async def note(self, pull: PullRequest, **columns: Any) -> None:
        """Store what a look has found out."""
        await self._session.execute(
            update(PullRequest)
            .where(
                PullRequest.repository_id == pull.repository_id, PullRequest.number == pull.number
            )
            .values(looked_at=func.clock_timestamp(), **columns)
        )

    async def store_checks(
        self, repository_id: str, sha: str, checks: Sequence[CheckFacts]
    ) -> None:
        """Store all checks of a commit; `seen_at` stays the instant at which the present result was first seen.

        A job that is rerun is a new check, and its forge does not list the old one any more.
        """
        present = [check.external_id for check in checks]
        own = (ForgeCheck.repository_id == repository_id, ForgeCheck.sha == sha)
        await self._session.execute(
            delete(ForgeCheck).where(*own, ForgeCheck.external_id.not_in(present))
        )
        if not checks:
            return
        added = insert(ForgeCheck).values(
            [
                {
                    "repository_id": repository_id,
                    "sha": sha,
                    "external_id": check.external_id,
                    "name": check.name,
                    "origin": check.origin,
                    "is_done": check.is_done,
                    "conclusion": check.conclusion,
                    "url": check.url,
                }
                for check in {check.external_id: check for check in checks}.values()
            ]
        )
        new = added.excluded
        columns = {name: new[name] for name in ("name", "origin", "is_done", "conclusion", "url")}
        is_other = or_(
            ForgeCheck.is_done != new.is_done,
            ForgeCheck.conclusion.is_distinct_from(new.conclusion),
        )
        await self._session.execute(
            added.on_conflict_do_update(
                index_elements=[ForgeCheck.repository_id, ForgeCheck.sha, ForgeCheck.external_id],
                set_={**columns, "seen_at": func.clock_timestamp()},
                where=is_other,
            )
        )

    async def list_checks(self, repository_id: str, sha: str) -> Sequence[ForgeCheck]:
        own = and_(ForgeCheck.repository_id == repository_id, ForgeCheck.sha == sha)
        found = await self._session.scalars(select(ForgeCheck).where(own).order_by(ForgeCheck.name))
        return found.all()

    async def has_message(self, task_id: str, origin: MessageOrigin, origin_ref: str) -> bool:
        found = select(TaskMessage.id).where(
            TaskMessage.task_id == task_id,
            TaskMessage.origin == origin,
            TaskMessage.origin_ref == origin_ref,
        )
        return await self._session.scalar(found) is not None

    async def count_fixes(self, task_id: str, *, since: datetime | None) -> int:
        """Count the failures that the agent was told since an instant."""
        query = select(func.count()).where(
            TaskMessage.task_id == task_id, TaskMessage.origin == MessageOrigin.CI
        )
        if since is not None:
            query = query.where(TaskMessage.created_at > since)
        return await self._session.scalar(query) or 0

    async def was_made_ready(self, task_id: str) -> bool:
        """Whether the server has already made the draft of a task ready."""
        found = select(ForgeWrite.id).where(
            ForgeWrite.task_id == task_id,
            ForgeWrite.kind == "pull",
            ForgeWrite.result["ready"].as_boolean(),
        )
        return await self._session.scalar(found.limit(1)) is not None

    async def list_handled_remarks(self, task_id: str) -> set[str]:
        """List the ids of the reviews and comments that messages were made of."""
        rows = await self._session.scalars(
            select(TaskMessage.data).where(
                TaskMessage.task_id == task_id, TaskMessage.origin.in_(_FROM_PULLS)
            )
        )
        return {remark for data in rows for remark in data.get("remarks", ())}

    async def list_recent_messages(self, task_id: str, *, limit: int) -> Sequence[TaskMessage]:
        """List messages, newest first."""
        own = select(TaskMessage).where(TaskMessage.task_id == task_id)
        return (await self._session.scalars(own.order_by(TaskMessage.id.desc()).limit(limit))).all()

    async def count_runs_since(self, task_id: str, since: datetime) -> int:
        """Count the runs of agents that began after an instant."""
        counted = select(func.count()).where(
            TaskRun.task_id == task_id, TaskRun.kind == RunKind.AGENT, TaskRun.created_at > since
        )
        return await self._session.scalar(counted) or 0

    async def list_answerable(self, task_id: str) -> Sequence[tuple[TaskMessage, TaskRun]]:
        """List the reviews and comments that a run was told which has ended."""
        told = and_(
            TaskRun.task_id == TaskMessage.task_id, TaskRun.number == TaskMessage.run_number
        )
        found = await self._session.execute(
            select(TaskMessage, TaskRun)
            .join(TaskRun, told)
            .where(
                TaskMessage.task_id == task_id,
                TaskMessage.origin.in_(_FROM_PULLS),
                TaskRun.ended_at.is_not(None),
            )
            .order_by(TaskMessage.id)
        )
        return [(row[0], row[1]) for row in found]


def told_by_person(message: TaskMessage) -> bool:
    """Return whether a person wrote a message, not a check or a bot."""
    if message.origin in (MessageOrigin.CI, MessageOrigin.CONFLICT):
        return False
    data: Mapping[str, Any] = message.data
    return not data.get("by_bot", False)
