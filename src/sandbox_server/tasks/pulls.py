from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import PullRequest
from sandbox_server.domain.tasks.forges import PullFacts

_FACTS = (
    *("url", "lifecycle", "draft", "head_ref", "head_sha", "base_ref", "mergeable", "review"),
    *("provider_updated_at", "validator", "looked_at"),
)


class PullRequestRepository:
    """Pull requests as their forge last described them: a description never replaces a newer one."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def record(
        self,
        repository_id: str,
        facts: PullFacts,
        *,
        task_id: str | None = None,
        validator: str | None = None,
    ) -> bool:
        """Insert or update a pull request; returns False if a newer description is known."""
        row = insert(PullRequest).values(
            repository_id=repository_id,
            number=facts.number,
            task_id=task_id,
            url=facts.url,
            lifecycle=facts.lifecycle,
            draft=facts.draft,
            head_ref=facts.head_ref,
            head_sha=facts.head_sha,
            base_ref=facts.base_ref,
            mergeable=facts.mergeable,
            review=facts.review,
            provider_updated_at=facts.updated_at,
            validator=validator,
            looked_at=func.clock_timestamp(),
        )
        changed = {name: getattr(row.excluded, name) for name in _FACTS}
        changed["task_id"] = func.coalesce(PullRequest.task_id, row.excluded.task_id)
        recorded = row.on_conflict_do_update(
            index_elements=[PullRequest.repository_id, PullRequest.number],
            set_=changed,
            where=PullRequest.provider_updated_at <= row.excluded.provider_updated_at,
        )
        found = await self._session.scalar(recorded.returning(PullRequest.number))
        return found is not None

    async def is_base_of_open(self, repository_id: str, branch: str) -> bool:
        """Whether an open pull request is to be merged into this branch."""
        found = select(PullRequest.number).where(
            PullRequest.repository_id == repository_id,
            PullRequest.base_ref == branch,
            PullRequest.lifecycle == "open",
        )
        return await self._session.scalar(found.limit(1)) is not None
