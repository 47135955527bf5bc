import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, NotSupportedByForge, PullExists
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.tasks.events import TaskPullChanged
from sandbox_server.domain.tasks.forges import (
    GitAccess,
    PullByPush,
    PullDraft,
    PullFacts,
    PullLifecycle,
)
from sandbox_server.domain.tasks.stages import PullRequestWish, Stage, TaskSource
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.forges.service import Forges
from sandbox_server.git.remotes import list_pull_heads
from sandbox_server.jobs.kinds import PULL_REQUEST
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.tasks.pulls import PullRequestRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.stages.report_comments import ReportComments
from sandbox_server.tasks.stages.work import AGAIN, Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions, apply_move, lock_seen
from sandbox_server.tasks.wording import conventional

log = logging.getLogger(__name__)

_BEGIN, _END = "<!-- sandbox-server:task -->", "<!-- /sandbox-server:task -->"
_OURS = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_UNSEEN = timedelta(hours=1)
_SOON = timedelta(seconds=2)
_SHOWN_WITHIN = timedelta(minutes=1)  # GitLab opens merge requests after it has answered the push
_OUTCOMES = {PullLifecycle.MERGED: Stage.MERGED, PullLifecycle.CLOSED: Stage.CLOSED}


class PullRequests:
    """The pull request of a task: at most one is open. Nothing here merges or reopens one."""

    def __init__(self, sessions: Sessions, forges: Forges, transitions: TaskTransitions) -> None:
        self._sessions = sessions
        self._forges = forges
        self._transitions = transitions
        self._report_comments = ReportComments(sessions, forges, transitions)

    async def report(self, work: TaskWork) -> timedelta:
        """Write the report as a comment, where the task opens no pull request of its own."""
        return await self._report_comments.publish(work)

    async def ensure(self, work: TaskWork) -> timedelta:
        """Find the pull request of the branch, open it, or update what the server wrote in it."""
        adapter = await self._forges.adapter(work.repository.forge_id)
        try:
            facts = await self._ensure(work, adapter)
        except NotSupportedByForge:
            return await self._without_api(work, adapter)
        await self._add_details(work, adapter, facts)
        await self._enter_review(work, facts)
        return AGAIN

    def by_push(self, work: TaskWork, adapter: ForgeAdapter) -> PullByPush | None:
        """Describe the push that opens the pull request, where the forge's API cannot."""
        return adapter.pull_by_push(_draft(work))

    async def work(self, work: TaskWork) -> timedelta | None:
        """Tasks in review: return to work when the agent is to be told something, end with the pull request."""
        async with without_transaction(self._sessions) as session:
            tasks = TaskRepository(session)
            pull = await tasks.find_pull(work.task.id)
            untold = await tasks.has_untold(work.task.id)
        if pull is not None and pull.lifecycle in _OUTCOMES:
            lifecycle = PullLifecycle(pull.lifecycle)
            ending = work.ending(_OUTCOMES[lifecycle], f"The pull request was {lifecycle}.")
            await self._transitions.commit(work.task, ending)
            return AGAIN
        if untold:
            move = TaskMove(
                stage=Stage.FIXING, reason="The agent is told what was said about its work."
            )
            await self._transitions.commit(work.task, move)
            return AGAIN
        if pull is not None and work.now - pull.looked_at >= _UNSEEN:
            await self._follow(work, pull.number)
        return _UNSEEN

    async def _follow(self, work: TaskWork, number: int) -> None:
        """Revive the job of the pull request, which alone reads it and wakes the task."""
        async with self._sessions.begin() as session:
            await JobRepository(session).due(PULL_REQUEST, f"{work.repository.id}/{number}")

    async def _ensure(self, work: TaskWork, adapter: ForgeAdapter) -> PullFacts:
        found = await adapter.find_pull(work.facts, work.branch)
        if found is None:
            return await self._open(work, adapter)
        if found.lifecycle is not PullLifecycle.OPEN:
            raise Blocked(
                WaitKind.PULL_REQUEST,
                f"Pull request #{found.number} of the branch is {found.lifecycle}, and is not reopened. "
                "Create a new task for what is left, or reopen it and retry.",
                actions=("retry", "cancel"),
                number=found.number,
            )
        return await self._update(work, adapter, found)

    async def _open(self, work: TaskWork, adapter: ForgeAdapter) -> PullFacts:
        try:
            return await adapter.open_pull(work.facts, _draft(work))
        except PullExists:
            found = await adapter.find_pull(work.facts, work.branch)
            if found is None:
                raise
            return found

    async def _update(self, work: TaskWork, adapter: ForgeAdapter, found: PullFacts) -> PullFacts:
        """Replace our section of the body; what people wrote around it stays."""
        section = _section(work)
        body = (
            _OURS.sub(lambda _: section, found.body)
            if _OURS.search(found.body)
            else f"{found.body}\n\n{section}".strip()
        )
        if body.strip() == found.body.strip():
            return found
        return await adapter.update_pull(work.facts, found.number, body=body)

    async def _add_details(self, work: TaskWork, adapter: ForgeAdapter, facts: PullFacts) -> None:
        """Add labels and reviewers; a pull request without them is better than none."""
        settings = work.settings
        try:
            if settings.labels:
                await adapter.add_labels(work.facts, facts.number, settings.labels)
            if settings.reviewers:
                await adapter.request_reviewers(work.facts, facts.number, settings.reviewers)
        except ForgeError as error:
            if error.is_repeatable:
                raise
            log.info("labels or reviewers not set task_id=%s error=%s", work.task.id, error)

    async def _enter_review(self, work: TaskWork, facts: PullFacts) -> None:
        async with self._sessions.begin() as session:
            row = await lock_seen(session, work.task)
            await PullRequestRepository(session).record(row.repository_id, facts, task_id=row.id)
            await JobRepository(session).due(PULL_REQUEST, f"{row.repository_id}/{facts.number}")
            opened = _opened(work, facts)
            move = TaskMove(
                stage=Stage.IN_REVIEW, reason=f"Pull request {facts.url}", events=[opened]
            )
            await apply_move(session, row, move)

    async def _without_api(self, work: TaskWork, adapter: ForgeAdapter) -> timedelta:
        """End after the push: without an API, nothing would tell how a pull request goes on."""
        by_push = self.by_push(work, adapter)
        if by_push is None:
            reason = f"The branch {work.branch} was pushed. This forge or its credential opens no pull requests."
            await self._transitions.commit(work.task, work.ending(Stage.DONE, reason))
            return AGAIN
        facts = await _find_pushed(work, adapter, by_push)
        if facts is None and work.in_stage_for < _SHOWN_WITHIN:
            return _SOON
        await self._end_with_pushed(work, facts)
        return AGAIN

    async def _end_with_pushed(self, work: TaskWork, facts: PullFacts | None) -> None:
        if facts is None:
            reason = f"The work was pushed as {work.branch}, but the forge shows no pull request for it. Open it there."
            await self._transitions.commit(work.task, work.ending(Stage.DONE, reason))
            return
        reason = (
            f"The push opened {facts.url}. It is not followed, since the forge has no API token."
        )
        move = replace(work.ending(Stage.DONE, reason), events=[_opened(work, facts)])
        async with self._sessions.begin() as session:
            row = await lock_seen(session, work.task)
            await PullRequestRepository(session).record(row.repository_id, facts, task_id=row.id)
            await apply_move(session, row, move)


async def _find_pushed(
    work: TaskWork, adapter: ForgeAdapter, by_push: PullByPush
) -> PullFacts | None:
    """Find the newest pull request at the published commit: its forge shows its head as a ref."""
    sha = work.task.published_sha
    assert sha is not None
    credential = await adapter.git_credential(work.facts, GitAccess.READ)
    heads = await list_pull_heads(credential, by_push.heads)
    number = max((number for number, head in heads.items() if head == sha), default=None)
    if number is None:
        return None
    page = by_push.page.format(number=number)
    return PullFacts(
        number=number,
        url=f"{credential.url.removesuffix('.git')}/{page}",
        lifecycle=PullLifecycle.OPEN,
        draft=work.task.pull_request == PullRequestWish.DRAFT,
        title=work.task.title,
        body="",
        head_ref=work.branch,
        head_sha=sha,
        head_repository_id=work.repository.external_id,
        base_ref=work.task.base_ref,
        updated_at=work.now,
    )


def _opened(work: TaskWork, facts: PullFacts) -> TaskPullChanged:
    return TaskPullChanged(
        task_id=work.task.id,
        cause=Cause.TASK,
        actor=SERVER,
        reason=f"Pull request #{facts.number} has the work.",
        number=facts.number,
        url=facts.url,
        lifecycle=facts.lifecycle,
    )


def _draft(work: TaskWork) -> PullDraft:
    return PullDraft(
        title=conventional(_title(work.task)),
        body=_section(work),
        head_ref=work.branch,
        base_ref=work.task.base_ref,
        draft=work.task.pull_request == PullRequestWish.DRAFT,
        labels=work.settings.labels,
        reviewers=work.settings.reviewers,
    )


def _title(task: Task) -> str:
    return str(task.report.get("title") or task.title)


def _section(work: TaskWork) -> str:
    """Write the part of the body that the server keeps up to date."""
    return "\n\n".join([_BEGIN, *_paragraphs(work), _END])


def _paragraphs(work: TaskWork) -> Iterator[str]:
    task = work.task
    if body := str(task.report.get("body") or task.report.get("summary") or "").strip():
        yield body.replace(_BEGIN, "").replace(_END, "")
    if checks := task.report.get("checks"):
        yield f"**Checks** (`{checks['command']}`): {checks['words']}."
    if task.source == TaskSource.ISSUE and task.source_ref is not None:
        yield f"Closes #{task.source_ref}"
    if task.source == TaskSource.MENTION:
        yield f"Requested in #{task.source_ref}, on whose branch it is based."
    cost = f", {task.spent_usd:.2f} USD" if task.spent_usd else ""
    yield f"Task `{task.id}`: {task.agent or 'a command'}, {task.runs} runs{cost}."
