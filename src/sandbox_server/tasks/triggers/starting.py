"""Starts tasks for issues, mentions and failed branches."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.db.models import Forge, Repository, WebhookDelivery
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import MessageOrigin, TaskSource
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.creation import TaskRequest
from sandbox_server.tasks.following.failure_logs import FailureReport, describe_failure
from sandbox_server.tasks.following.remarks import Listeners
from sandbox_server.tasks.following.repository import FollowedPullRepository
from sandbox_server.tasks.following.verdict import PATIENCE, Overall, judge
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.triggers.payloads import DeliveredComment
from sandbox_server.tasks.triggers.repository import TriggerRepository


@dataclass(frozen=True)
class Trigger:
    """A delivery with what it is about."""

    delivery: WebhookDelivery
    repository: Repository
    forge: Forge
    adapter: ForgeAdapter
    now: datetime

    @property
    def facts(self) -> RepositoryFacts:
        return facts_of(self.repository)

    @property
    def settings(self) -> RepositorySettings:
        return RepositorySettings.of(self.repository.settings)

    @property
    def actor(self) -> str:
        return self.delivery.actor or ""


@dataclass(frozen=True)
class Result:
    """What came of a delivery; or when to look again, if that is not decided yet."""

    outcome: str
    look_at: datetime | None = None


class Starting:
    """Decides whether a delivery starts a task, and starts it."""

    def __init__(self, sessions: Sessions, repositories: Repositories, tasks: Tasks) -> None:
        self._sessions = sessions
        self._repositories = repositories
        self._tasks = tasks

    async def issue(self, trigger: Trigger, labels: set[str]) -> Result:
        """Start a task for an issue that got a label."""
        number = trigger.delivery.subject
        if not labels & set(trigger.settings.triggers.labels) or number is None:
            return Result("Ignored: no label of the repository's triggers was added.")
        if refusal := await self._find_refusal(trigger):
            return Result(refusal)
        request = TaskRequest(
            source=TaskSource.ISSUE, source_ref=number, requester=trigger.actor, data=_data(trigger)
        )
        return await self._create(trigger, request)

    async def mention(self, trigger: Trigger, comment: DeliveredComment) -> Result:
        """Start a task for a comment on an issue that mentions the agent, or tell the task that is open."""
        number, word = trigger.delivery.subject, trigger.settings.triggers.mention
        if number is None or word is None or word.lower() not in comment.body.lower():
            return Result("Ignored: the agent is not mentioned.")
        if _listeners(trigger).is_own(trigger.actor, comment.body):
            return Result("Ignored: written by this server.")
        if refusal := await self._find_refusal(trigger):
            return Result(refusal)
        async with without_transaction(self._sessions) as session:
            task = await TriggerRepository(session).find_open_of_issue(
                trigger.repository.id, number
            )
        if task is not None:
            return await self._tell(trigger, task.id, comment)
        request = TaskRequest(
            source=TaskSource.ISSUE,
            source_ref=number,
            source_url=comment.url,
            requester=trigger.actor,
            instructions=comment.body,
            title=f"Issue #{number}",
            data={**_data(trigger), "remarks": [f"comment/{comment.id}"]},
        )
        return await self._create(trigger, request)

    async def ci_fix(self, trigger: Trigger, branch: str) -> Result:
        """Start a task for a branch whose checks have failed."""
        sha = trigger.delivery.subject
        if sha is None or not trigger.settings.triggers.ci_fix:
            return Result("Ignored: the repository does not enable ci_fix.")
        if refusal := await self._find_refusal(trigger, of_person=False):
            return Result(refusal)
        async with without_transaction(self._sessions) as session:
            if await TriggerRepository(session).is_branch_of_task(trigger.repository.id, branch):
                return Result("Ignored: the branch belongs to a task.")
        return await self._fix(trigger, branch, sha)

    async def _fix(self, trigger: Trigger, branch: str, sha: str) -> Result:
        answer = await trigger.adapter.list_checks(trigger.facts, sha)
        async with self._sessions.begin() as session:
            pulls = FollowedPullRepository(session)
            await pulls.store_checks(trigger.repository.id, sha, answer.value or ())
            checks = await pulls.list_checks(trigger.repository.id, sha)
        verdict = judge(checks, now=trigger.now)
        if verdict.overall is Overall.PENDING:
            look_at = min(verdict.look_at or trigger.now + PATIENCE, trigger.now + PATIENCE)
            return Result("Checks are still running.", look_at)
        if verdict.overall is not Overall.FAILURE:
            return Result("Ignored: no check of the commit fails any more.")
        report = await describe_failure(trigger.adapter, trigger.facts, verdict.failed)
        names = ", ".join(sorted({check.name for check in verdict.failed}))
        request = TaskRequest(
            source=TaskSource.CI_FIX,
            source_ref=branch,
            source_url=verdict.failed[0].url,
            requester=trigger.actor,
            title=f"fix: make {names} pass on {branch}"[:200],
            instructions=(
                f"Checks of the branch {branch} fail at commit {sha}. Find the cause in the logs and fix it. "
                "If the failure is not caused by the code of the repository, change nothing and say why."
            ),
            base=branch,
            metadata={"sha": sha},
            data={"trigger": f"ci/{branch}/{verdict.key}", "checks": names},
        )
        return await self._create(trigger, request, then=(verdict.key, report))

    async def _create(
        self,
        trigger: Trigger,
        request: TaskRequest,
        *,
        then: tuple[str, FailureReport] | None = None,
    ) -> Result:
        """Create the task unless this was done before; a retried or replayed delivery creates nothing."""
        async with without_transaction(self._sessions) as session:
            known = await TriggerRepository(session).has_acted_on(
                trigger.repository.id, request.data["trigger"]
            )
        if known:
            return Result("Ignored: it has started a task before.")
        task = await self._tasks.create_from_trigger(trigger.repository, request)
        if task is None:
            return Result("Ignored: a task is open for it.")
        if then is not None:
            key, report = then
            await self._tasks.add_message(
                task.id,
                origin=MessageOrigin.CI,
                origin_ref=key,
                text=report.text,
                data=report.data,
            )
        return Result(f"Task {task.id} created.")

    async def _tell(self, trigger: Trigger, task_id: str, comment: DeliveredComment) -> Result:
        added = await self._tasks.add_message(
            task_id,
            origin=MessageOrigin.COMMENT,
            origin_ref=f"comment/{comment.id}",
            text=comment.body,
            author=trigger.actor,
            data={"remarks": [f"comment/{comment.id}"], "by_bot": trigger.delivery.actor_is_bot},
        )
        return Result(f"Task {task_id} was told." if added else "Ignored: it was told before.")

    async def _find_refusal(self, trigger: Trigger, *, of_person: bool = True) -> str | None:
        """Return why the delivery may not start anything, if so."""
        if trigger.repository.triggers_paused_reason is not None:
            return f"Ignored: triggers are paused. {trigger.repository.triggers_paused_reason}"
        if trigger.repository.may_push is False:
            return "Ignored: the forge's credential may not push to the repository."
        if of_person and (refusal := await self._find_refusal_of_actor(trigger)):
            return refusal
        async with without_transaction(self._sessions) as session:
            failed = await TriggerRepository(session).list_failed_in_a_row(trigger.repository.id)
        if not failed:
            return None
        reason = f"The last {len(failed)} tasks failed: {failed[0].stage_reason}"
        await self._repositories.pause_triggers(trigger.repository.id, reason=reason)
        return f"Ignored: triggers were paused. {reason}"

    async def _find_refusal_of_actor(self, trigger: Trigger) -> str | None:
        listeners = _listeners(trigger)
        if listeners.is_own(trigger.actor):
            return "Ignored: caused by this server."
        if not await listeners.counts(trigger.actor, is_bot=trigger.delivery.actor_is_bot):
            return (
                f"Ignored: {trigger.actor or 'somebody'} has no write permission and is not listed in "
                "triggers.users."
            )
        return None


def _listeners(trigger: Trigger) -> Listeners:
    users = trigger.settings.triggers.users
    return Listeners(trigger.adapter, trigger.facts, trigger.forge, users=users)


def _data(trigger: Trigger) -> dict[str, str]:
    """Name what was delivered by its contents, since the id of a delivery is not signed."""
    digest = hashlib.sha256(trigger.delivery.digest).hexdigest()[:32]
    return {"trigger": f"delivery/{digest}"}
