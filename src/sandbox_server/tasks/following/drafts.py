from datetime import datetime, timedelta

from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.stages import PullRequestWish, RunOutcome, Stage
from sandbox_server.tasks.following.repository import FollowedPull, FollowedPullRepository
from sandbox_server.tasks.following.verdict import Overall, Verdict
from sandbox_server.tasks.outbox_repository import Outbox

WITHOUT_CHECKS_AFTER = timedelta(minutes=10)
"""A head that has no checks this long after the last change of its pull request has none."""
SETTLED_AFTER = timedelta(minutes=1)
"""Forges create the checks of a push one after the other: the first ones may pass before others exist."""


class DraftWatch:
    """Makes the draft of a task ready for review once its checks have passed."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def look(self, followed: FollowedPull, verdict: Verdict) -> datetime | None:
        """Request that the draft becomes ready if its head is green; returns when to look again.

        The server does this once: what a person makes a draft again stays one.
        """
        if not _is_our_draft(followed):
            return None
        ready_at = _ready_at(followed, verdict)
        if ready_at is None or followed.now < ready_at:
            return ready_at
        await self._request(followed)
        return None

    async def _request(self, followed: FollowedPull) -> None:
        async with without_transaction(self._sessions) as session:
            if await FollowedPullRepository(session).was_made_ready(followed.task.id):
                return
        async with self._sessions.begin() as session:
            await Outbox(session).add(
                followed.owner,
                kind="pull",
                key=f"ready/{followed.pull.head_sha}",
                payload={"number": followed.number, "sha": followed.pull.head_sha},
            )


def _is_our_draft(followed: FollowedPull) -> bool:
    task = followed.task
    return (
        followed.pull.draft
        and task.pull_request == PullRequestWish.DRAFT
        and task.stage == Stage.IN_REVIEW
    )


def _ready_at(followed: FollowedPull, verdict: Verdict) -> datetime | None:
    task = followed.task
    match verdict.overall:
        case Overall.SUCCESS:
            return task.stage_at + SETTLED_AFTER
        case Overall.NONE if not _has_failed_in_sandbox(task):
            return max(task.stage_at, followed.pull.provider_updated_at) + WITHOUT_CHECKS_AFTER
    return None


def _has_failed_in_sandbox(task: Task) -> bool:
    return bool(task.report.get("checks", {}).get("outcome") == RunOutcome.FAILED)
