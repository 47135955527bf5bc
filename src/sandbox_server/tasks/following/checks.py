"""Checks of a pull request's head: stored, judged, and told to the agent when they fail."""

from collections.abc import Sequence

from sandbox_server.db.models import ForgeCheck
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import MessageOrigin, Stage
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.jobs.kinds import TASK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.facts import facts_of
from sandbox_server.tasks.following.failure_logs import describe_failure
from sandbox_server.tasks.following.interventions import Interventions
from sandbox_server.tasks.following.repository import FollowedPull, FollowedPullRepository
from sandbox_server.tasks.following.reruns import Rerun, find_rerun, key_of
from sandbox_server.tasks.following.verdict import FAILED, Overall, Verdict, judge
from sandbox_server.tasks.service import Tasks


class CheckWatch:
    """Follows the checks of pull requests."""

    def __init__(self, sessions: Sessions, tasks: Tasks, interventions: Interventions) -> None:
        self._sessions = sessions
        self._tasks = tasks
        self._interventions = interventions

    async def look(self, adapter: ForgeAdapter, followed: FollowedPull) -> Verdict:
        """Read the checks of the head and act on them; the verdict says when to look again."""
        checks = await self._refresh(adapter, followed)
        verdict = judge(checks, now=followed.now)
        if verdict.overall is Overall.FAILURE:
            red = await _find_red_on_base(adapter, followed)
            verdict = judge(checks, now=followed.now, red_on_base=red)
        rerun = await self._find_rerun(followed)
        if rerun is not None and verdict.overall is Overall.FAILURE:
            verdict = rerun.awaited(verdict, now=followed.now) or verdict
        await self._note(followed, verdict)
        if verdict.overall is Overall.FAILURE:
            await self._act(adapter, followed, verdict, rerun)
        return verdict

    async def _find_rerun(self, followed: FollowedPull) -> Rerun | None:
        pull = followed.pull
        async with without_transaction(self._sessions) as session:
            return await find_rerun(session, pull.repository_id, pull.head_sha)

    async def _refresh(self, adapter: ForgeAdapter, followed: FollowedPull) -> Sequence[ForgeCheck]:
        pull, sha = followed.pull, followed.pull.head_sha
        known, _, validator = (pull.checks_validator or "").partition(" ")
        answer = await adapter.list_checks(
            facts_of(followed.repository), sha, validator=validator if known == sha else None
        )
        async with self._sessions.begin() as session:
            pulls = FollowedPullRepository(session)
            if answer.value is not None:
                await pulls.store_checks(pull.repository_id, sha, answer.value)
                stamp = None if answer.validator is None else f"{sha} {answer.validator}"
                await pulls.note(pull, checks_validator=stamp)
            return await pulls.list_checks(pull.repository_id, sha)

    async def _note(self, followed: FollowedPull, verdict: Verdict) -> None:
        """Store the verdict; the task's stage may wait for it."""
        overall = None if verdict.overall is Overall.NONE else verdict.overall
        if followed.pull.checks == overall:
            return
        is_green = verdict.overall is Overall.SUCCESS
        async with self._sessions.begin() as session:
            green = {"green_at": followed.now} if is_green else {}
            await FollowedPullRepository(session).note(followed.pull, checks=overall, **green)
            await JobRepository(session).due(TASK, followed.task.id)
        followed.pull.checks = overall

    async def _act(
        self,
        adapter: ForgeAdapter,
        followed: FollowedPull,
        verdict: Verdict,
        rerun: Rerun | None,
    ) -> None:
        task, settings = followed.task, RepositorySettings.of(followed.task.settings)
        if not settings.auto_fix or task.stage != Stage.IN_REVIEW:
            return
        if rerun is not None and rerun.error is not None:
            await self._say_that_it_was_not_rerun(followed, rerun)
            return
        key = key_of(verdict, rerun)
        async with without_transaction(self._sessions) as session:
            pulls = FollowedPullRepository(session)
            if await pulls.has_message(task.id, MessageOrigin.CI, key):
                return
            fixes = await pulls.count_fixes(task.id, since=followed.pull.green_at)
        if fixes >= settings.max_fixes:
            names = ", ".join(sorted({each.name for each in verdict.failed}))
            reason = f"Checks still fail after {fixes} fixes: {names}."
            await self._interventions.wait_for_person(followed, kind="checks-failed", reason=reason)
            return
        if await self._interventions.stop_loop(followed):
            return
        facts = facts_of(followed.repository)
        report = await describe_failure(adapter, facts, verdict.failed, is_second=rerun is not None)
        await self._tasks.add_message(
            task.id,
            origin=MessageOrigin.CI,
            origin_ref=key,
            text=report.text,
            data=report.data,
        )

    async def _say_that_it_was_not_rerun(self, followed: FollowedPull, rerun: Rerun) -> None:
        reason = f"The checks fail, which the agent reports as flaky: {rerun.reason} They could not be rerun: {rerun.error}"
        await self._interventions.wait_for_person(followed, kind="checks-failed", reason=reason)


async def _find_red_on_base(adapter: ForgeAdapter, followed: FollowedPull) -> set[str]:
    """Find the names of checks that fail at the commit that the task began with."""
    base = followed.task.base_sha
    if base is None:
        return set()
    answer = await adapter.list_checks(facts_of(followed.repository), base)
    return {each.name for each in answer.value or () if each.conclusion in FAILED}
