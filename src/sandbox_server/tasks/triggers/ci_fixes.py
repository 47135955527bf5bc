from dataclasses import replace

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.repositories import CiFixMode
from sandbox_server.domain.tasks.stages import PullRequestWish, TaskSource
from sandbox_server.tasks.creation import TaskRequest
from sandbox_server.tasks.following.failure_logs import describe_failure
from sandbox_server.tasks.following.repository import FollowedPullRepository
from sandbox_server.tasks.following.reruns import Rerun, find_rerun, key_of
from sandbox_server.tasks.following.verdict import PATIENCE, Overall, Verdict, judge
from sandbox_server.tasks.triggers.repository import TriggerRepository
from sandbox_server.tasks.triggers.starting import TaskStarter
from sandbox_server.tasks.triggers.trigger import Result, Trigger


class CiFixes:
    """Failed checks of branches that belong to no task."""

    def __init__(self, sessions: Sessions, starter: TaskStarter) -> None:
        self._sessions = sessions
        self._starter = starter

    async def start(self, trigger: Trigger, branch: str) -> Result:
        """Start a task for a branch whose checks have failed."""
        sha = trigger.delivery.subject
        if sha is None or not trigger.settings.triggers.ci_fix:
            return Result("Ignored: the repository does not enable ci_fix.")
        pushes = not _is_comment(trigger)
        if refusal := await self._starter.find_refusal(trigger, of_person=False, pushes=pushes):
            return Result(refusal)
        async with without_transaction(self._sessions) as session:
            if await TriggerRepository(session).is_branch_of_task(trigger.repository.id, branch):
                return Result("Ignored: the branch belongs to a task.")
        verdict = await self._judge(trigger, sha)
        async with without_transaction(self._sessions) as session:
            rerun = await find_rerun(session, trigger.repository.id, sha)
        if rerun is not None and verdict.overall is Overall.FAILURE:
            verdict = rerun.awaited(verdict, now=trigger.now) or verdict
        if verdict.overall is Overall.PENDING:
            look_at = min(verdict.look_at or trigger.now + PATIENCE, trigger.now + PATIENCE)
            return Result("Checks are still running.", look_at)
        if verdict.overall is not Overall.FAILURE:
            return Result("Ignored: no check of the commit fails any more.")
        return await self._start(trigger, branch, verdict, rerun)

    async def _judge(self, trigger: Trigger, sha: str) -> Verdict:
        answer = await trigger.adapter.list_checks(trigger.facts, sha)
        async with self._sessions.begin() as session:
            pulls = FollowedPullRepository(session)
            await pulls.store_checks(trigger.repository.id, sha, answer.value or ())
            checks = await pulls.list_checks(trigger.repository.id, sha)
        return judge(checks, now=trigger.now)

    async def _start(
        self, trigger: Trigger, branch: str, verdict: Verdict, rerun: Rerun | None
    ) -> Result:
        is_second, key = rerun is not None, key_of(verdict, rerun)
        report = await describe_failure(
            trigger.adapter, trigger.facts, verdict.failed, is_second=is_second
        )
        if _is_comment(trigger):  # whose run reports, and starts nothing
            report = replace(report, data={**report.data, "may_rerun": False})
        names = ", ".join(sorted({check.name for check in verdict.failed}))
        sha = verdict.failed[0].sha
        request = TaskRequest(
            source=TaskSource.CI_FIX,
            source_ref=branch,
            source_url=verdict.failed[0].url,
            requester=trigger.actor,
            title=f"fix: make {names} pass on {branch}"[:200],
            instructions=f"Checks of the branch {branch} fail at commit {sha}. {_wanted(trigger)}",
            pull_request=PullRequestWish.COMMENT if _is_comment(trigger) else None,
            base=branch,
            metadata={"sha": sha},
            data={"trigger": f"ci/{branch}/{key}", "checks": names},
        )
        return await self._starter.start(trigger, request, then=(key, report))


def _is_comment(trigger: Trigger) -> bool:
    return trigger.settings.triggers.ci_fix_mode == CiFixMode.COMMENT


def _wanted(trigger: Trigger) -> str:
    if _is_comment(trigger):
        return (
            "Find the cause in the logs and in the code. Change nothing and commit nothing: your report is published as a "
            "comment. Say what fails, why, and which change would fix it."
        )
    return (
        "Find the cause in the logs and fix it. If the failure is not caused by the code of the repository, change nothing "
        "and say why."
    )
