import logging
from datetime import datetime, timedelta

from sandbox_server.db.models import PullRequest
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, ForgeNotFound, ForgeResourceNotFound
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.events import TaskPullChanged
from sandbox_server.domain.tasks.forges import PullFacts, PullLifecycle
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import MessageOrigin, Stage
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.jobs.kinds import PULL_REQUEST, TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import ForgeDirectory
from sandbox_server.tasks.following.checks import CheckWatch
from sandbox_server.tasks.following.drafts import DraftWatch
from sandbox_server.tasks.following.interventions import Interventions
from sandbox_server.tasks.following.remarks import Listeners, gather, read_remarks
from sandbox_server.tasks.following.replies import answer_remarks
from sandbox_server.tasks.following.repository import FollowedPull, FollowedPullRepository
from sandbox_server.tasks.forge_failures import repeat_at
from sandbox_server.tasks.pulls import PullRequestRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.transitions import TaskMove, apply_move

log = logging.getLogger(__name__)

RECONCILE_EVERY = timedelta(minutes=10)
_SETTLED = timedelta(seconds=30)
"""Forges date changes to the second, so a remark may still follow that does not change the date."""


class PullRequestFollower:
    """Reads a task's open pull request when a webhook reports a change, and every ten minutes."""

    def __init__(self, sessions: Sessions, forges: ForgeDirectory, tasks: Tasks) -> None:
        self._sessions = sessions
        self._forges = forges
        self._tasks = tasks
        self._interventions = Interventions(sessions)
        self._checks = CheckWatch(sessions, tasks, self._interventions)
        self._drafts = DraftWatch(sessions)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at a pull request; returns when to look again, None once it or its task has ended."""
        repository_id, _, number = job.subject.rpartition("/")
        followed = await self._find(repository_id, int(number))
        if followed is None or _is_over(followed):
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(PULL_REQUEST, job.subject)
            return None
        try:
            return await self._look(followed)
        except (ForgeNotFound, ForgeResourceNotFound) as error:
            log.warning("pull request unreadable subject=%s error=%s", job.subject, error)
        except ForgeError as error:
            log.warning("forge does not answer subject=%s error=%s", job.subject, error)
            return repeat_at(error, now=followed.now) or followed.now + RECONCILE_EVERY
        return followed.now + RECONCILE_EVERY

    async def _look(self, followed: FollowedPull) -> datetime | None:
        adapter = await self._forges.adapter(followed.forge.id)
        current = await self._refresh(adapter, followed)
        if current is None or _is_over(current):
            return None
        await self._tell_conflict(current)
        verdict = await self._checks.look(adapter, current)
        next_looks = [
            current.now + RECONCILE_EVERY,
            verdict.look_at,
            await self._drafts.look(current, verdict),
            await self._hear(adapter, current),
        ]
        async with self._sessions.begin() as session:
            await answer_remarks(session, current)
        return min(each for each in next_looks if each is not None)

    async def _find(self, repository_id: str, number: int) -> FollowedPull | None:
        async with without_transaction(self._sessions) as session:
            return await FollowedPullRepository(session).find_followed(repository_id, number)

    async def _refresh(self, adapter: ForgeAdapter, followed: FollowedPull) -> FollowedPull | None:
        pull = followed.pull
        answer = await adapter.get_pull(
            facts_of(followed.repository), pull.number, validator=pull.validator
        )
        if answer.value is not None:
            await self._store(followed, answer.value, answer.validator)
        else:
            await self._note_unchanged(pull)
        return await self._find(pull.repository_id, pull.number)

    async def _note_unchanged(self, pull: PullRequest) -> None:
        async with self._sessions.begin() as session:
            await FollowedPullRepository(session).note(pull)

    async def _store(self, followed: FollowedPull, facts: PullFacts, validator: str | None) -> None:
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(followed.task.id)
            stored = await PullRequestRepository(session).record(
                followed.repository.id, facts, task_id=row.id, validator=validator
            )
            if not stored or not _has_changed(followed, facts):
                return
            await JobRepository(session).due(TASK, row.id)
            await apply_move(session, row, TaskMove(events=[_event(row.id, facts)]))

    async def _tell_conflict(self, followed: FollowedPull) -> None:
        pull, task = followed.pull, followed.task
        if pull.mergeable is not False or task.stage != Stage.IN_REVIEW:
            return
        async with without_transaction(self._sessions) as session:
            known = await FollowedPullRepository(session).has_message(
                task.id, MessageOrigin.CONFLICT, pull.head_sha
            )
        if known or await self._interventions.stop_loop(followed):
            return
        await self._tasks.add_message(
            task.id,
            origin=MessageOrigin.CONFLICT,
            origin_ref=pull.head_sha,
            text=(
                f"The branch conflicts with {pull.base_ref}. Fetch origin/{pull.base_ref} and merge it into the branch, "
                "resolve the conflicts, and commit the merge. Do not rebase."
            ),
            data={"head": pull.head_sha, "base": pull.base_ref},
        )

    async def _hear(self, adapter: ForgeAdapter, followed: FollowedPull) -> datetime | None:
        """Read reviews and comments if the pull request has changed since the last time."""
        pull = followed.pull
        if pull.remarks_at is not None and pull.remarks_at >= pull.provider_updated_at:
            return None
        repository = facts_of(followed.repository)
        settings = RepositorySettings.of(followed.repository.settings)
        async with without_transaction(self._sessions) as session:
            handled = await FollowedPullRepository(session).list_handled_remarks(followed.task.id)
        listeners = Listeners(adapter, repository, followed.forge, users=settings.triggers.users)
        remarks = await read_remarks(
            adapter,
            repository,
            pull.number,
            since=pull.remarks_at,
            handled=handled,
            listeners=listeners,
        )
        gathered = gather(remarks, now=followed.now)
        for message in gathered.messages:
            if message.data["by_bot"] and await self._interventions.stop_loop(followed):
                return gathered.look_at
            await self._tasks.add_message(
                followed.task.id,
                origin=message.origin,
                origin_ref=message.origin_ref,
                text=message.text,
                author=message.author,
                data=message.data,
            )
        if gathered.look_at is not None:
            return gathered.look_at
        if followed.now - pull.provider_updated_at < _SETTLED:
            return followed.now + _SETTLED
        async with self._sessions.begin() as session:
            await FollowedPullRepository(session).note(pull, remarks_at=pull.provider_updated_at)
        return None


def _is_over(followed: FollowedPull) -> bool:
    return followed.pull.lifecycle != PullLifecycle.OPEN or followed.task.ended_at is not None


def _has_changed(followed: FollowedPull, facts: PullFacts) -> bool:
    pull = followed.pull
    before = (pull.lifecycle, pull.head_sha, pull.draft, pull.review, pull.mergeable)
    return before != (facts.lifecycle, facts.head_sha, facts.draft, facts.review, facts.mergeable)


def _event(task_id: str, facts: PullFacts) -> TaskPullChanged:
    return TaskPullChanged(
        task_id=task_id,
        cause=Cause.FORGE,
        actor=SERVER,
        reason=f"Pull request #{facts.number} is {facts.lifecycle}, at {facts.head_sha[:12]}.",
        number=facts.number,
        url=facts.url,
        lifecycle=facts.lifecycle,
    )
