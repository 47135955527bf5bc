from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sandbox_server.db.models import Task, TaskMessage
from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.forges import Comment, Issue, PullLifecycle, RepositoryFacts
from sandbox_server.domain.tasks.stages import PullRequestWish, Stage, TaskSource
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.forges.service import Forges
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.work import AGAIN, Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, apply_move, lock_seen

_LOOK_AGAIN = timedelta(seconds=30)
_DAY = timedelta(days=1)
_PUSHED = frozenset({PullRequestWish.DRAFT, PullRequestWish.READY})


class Preflight:
    """Queued tasks: checks what would fail later, and gives the task a place."""

    def __init__(self, sessions: Sessions, forges: Forges) -> None:
        self._sessions = sessions
        self._forges = forges

    async def work(self, work: TaskWork) -> timedelta | None:
        """Read the repository and the issue from the forge, then take a free place."""
        issue = await self._inspect(work)
        return AGAIN if await self._take_place(work, issue) else _LOOK_AGAIN

    async def _inspect(self, work: TaskWork) -> Issue | None:
        adapter = await self._forges.adapter(work.repository.forge_id)
        facts = await adapter.find_repository(work.repository.full_name)
        if facts.may_push is False and work.task.pull_request in _PUSHED:
            raise Blocked(
                WaitKind.FORGE,
                f"The credential of the forge may not push to {facts.full_name}. "
                "Grant it write access to the contents of the repository, then retry.",
                actions=("retry", "cancel"),
            )
        return await _read_subject(adapter, facts, work.task)

    async def _take_place(self, work: TaskWork, issue: Issue | None) -> bool:
        async with self._sessions.begin() as session:
            tasks = TaskRepository(session)
            await tasks.lock_places(work.repository.id)
            row = await lock_seen(session, work.task)
            if not await tasks.has_place(row, max_open=work.settings.max_open):
                return False
            daily = work.settings.budget_usd_per_day
            if daily is not None and await tasks.spent_since(row.repository_id, _DAY) >= daily:
                raise Blocked(
                    WaitKind.BUDGET,
                    f"The tasks of {work.repository.full_name} have cost {daily:g} USD within 24 hours, "
                    "which is the limit of the repository. Raise budget_usd_per_day or retry later.",
                    actions=("retry", "cancel"),
                )
            history = TaskHistoryRepository(session)
            values: dict[str, Any] = {}
            if issue is not None:
                values = _of_issue(row.title, issue)
                await _add_issue(await history.list_messages(row.id, limit=1), issue)
            await apply_move(
                session,
                row,
                TaskMove(stage=Stage.PREPARING, reason="A place is free.", values=values),
            )
        return True


async def _read_subject(adapter: ForgeAdapter, facts: RepositoryFacts, task: Task) -> Issue | None:
    """Read the issue or the pull request that a task is about."""
    if task.source_ref is None or task.source not in (TaskSource.ISSUE, TaskSource.MENTION):
        return None
    number = int(task.source_ref)
    if task.source == TaskSource.ISSUE:
        return await adapter.get_issue(facts, number)
    pull = (await adapter.get_pull(facts, number)).value
    assert pull is not None  # it was asked for without a validator
    return Issue(
        number=number,
        title=pull.title,
        body=pull.body,
        author=pull.author or "somebody",
        url=pull.url,
        is_open=pull.lifecycle is PullLifecycle.OPEN,
        comments=await adapter.list_comments(facts, number),
        is_pull=True,
    )


def _of_issue(title: str, issue: Issue) -> dict[str, Any]:
    known = title if title != f"Issue #{issue.number}" else issue.title
    return {"title": known, "source_url": issue.url}


async def _add_issue(messages: Sequence[TaskMessage], issue: Issue) -> None:
    """Keep the issue as it was read: the first message is what the first run is told."""
    for first in messages:
        first.data = {**first.data, "issue": _document(issue)}


def _document(issue: Issue) -> dict[str, Any]:
    return {
        "number": issue.number,
        "is_pull": issue.is_pull,
        "title": issue.title,
        "body": issue.body,
        "author": issue.author,
        "url": issue.url,
        "labels": list(issue.labels),
        "comments": [_comment(one) for one in issue.comments],
    }


def _comment(comment: Comment) -> dict[str, str]:
    return {"author": comment.author, "body": comment.body}
