from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sandbox_server.db.models import Task
from sandbox_server.domain.errors import RemoteUnreachable
from sandbox_server.domain.events import SERVER, Cause
from sandbox_server.domain.tasks.events import TaskPushed
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential, PullByPush
from sandbox_server.domain.tasks.repositories import CommitStyle
from sandbox_server.domain.tasks.stages import MessageOrigin, PullRequestWish, Stage
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.remotes import NO_OPTIONS, PushResult, list_pull_heads
from sandbox_server.git.scanning import Findings
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.publication import (
    hides_in_history,
    publish_large_files,
    require_publishable,
)
from sandbox_server.tasks.stages.pull_requests import PullRequests
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.work import AGAIN, Blocked, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions
from sandbox_server.tasks.wording import conventional, identity_of, reworded

_SOON = timedelta(seconds=2)
_NOW = timedelta(0)
_WORKFLOWS = ".github/workflows/"
_JOINED = "joined"


@dataclass(frozen=True)
class _Publication:
    """One step of publishing, with what it works on."""

    work: TaskWork
    repository: BareRepository
    head: str
    credential: GitCredential
    by_push: PullByPush | None

    @property
    def branch_ref(self) -> str:
        return f"refs/heads/{self.work.branch}"

    @property
    def ref(self) -> str:
        """The ref to push to; one that is not the branch belongs to nobody."""
        return self.branch_ref if self.by_push is None else self.by_push.ref


class Publishing:
    """Publishing tasks: the server pushes what the agent committed, and opens the pull request."""

    def __init__(
        self,
        *,
        sandboxes: TaskSandboxes,
        checkout: TaskCheckout,
        saves: TaskSaves,
        repositories: TaskRepositories,
        forges: Forges,
        tasks: Tasks,
        pull_requests: PullRequests,
        transitions: TaskTransitions,
    ) -> None:
        self._sandboxes = sandboxes
        self._checkout = checkout
        self._saves = saves
        self._repositories = repositories
        self._forges = forges
        self._tasks = tasks
        self._pull_requests = pull_requests
        self._transitions = transitions

    async def work(self, work: TaskWork) -> timedelta | None:
        """Push the head unless that is done, then see to the pull request."""
        if work.task.pull_request == PullRequestWish.COMMENT:
            return await self._pull_requests.report(work)
        if work.task.head_sha == work.task.published_sha:
            return await self._after_push(work)
        async with self._repositories.open(
            work.repository, work.task.id, max_age=_NOW
        ) as repository:
            return await self._publish(work, repository)

    async def _after_push(self, work: TaskWork) -> timedelta:
        if work.task.pull_request != PullRequestWish.NONE:
            return await self._pull_requests.ensure(work)
        done = work.ending(
            Stage.DONE, "Done; no pull request was requested. The work is in the saves."
        )
        await self._transitions.commit(work.task, done)
        return AGAIN

    async def _publish(self, work: TaskWork, repository: BareRepository) -> timedelta:
        head = work.task.head_sha
        last = await self._saves.find_last(work.task.id)
        assert head is not None
        assert last is not None
        await repository.import_bundle(await self._saves.read(last))
        candidate, findings = await self._find_candidate(work, repository, head)
        if candidate != head:
            return await self._adopt(work, repository, candidate, reason="Commits were reworded.")
        require_publishable(findings, head, is_approved=head in work.task.approved)
        if work.task.pull_request == PullRequestWish.NONE:
            return await self._after_push(work)
        adapter = await self._forges.adapter(work.repository.forge_id)
        credential = await adapter.git_credential(work.facts, _access_for(findings))
        if findings.lfs_pointers or not findings.is_complete:
            await publish_large_files(
                self._saves.large_files, work.task, repository, credential, head
            )
        by_push = self._pull_requests.by_push(work, adapter)
        return await self._push(_Publication(work, repository, head, credential, by_push))

    async def _find_candidate(
        self, work: TaskWork, repository: BareRepository, head: str
    ) -> tuple[str, Findings]:
        """Find what to publish: the head with conventional subjects, squashed if that removes what may not be published."""
        task, protected = work.task, work.settings.protected_paths
        base = task.published_sha or task.base_sha
        assert base is not None
        identity = identity_of(await self._forges.find_row(work.repository.forge_id))
        candidate = head
        if work.settings.commit_style == CommitStyle.CONVENTIONAL:
            candidate = await repository.rewrite_commits(base, head, reworded, committer=identity)
        findings = await repository.scan(base, candidate, protected=protected)
        if hides_in_history(findings) and candidate not in task.approved:
            squashed = await repository.squash(
                base, head, conventional(title_of(work)), author=identity, committer=identity
            )
            of_squashed = await repository.scan(base, squashed, protected=protected)
            if not hides_in_history(of_squashed):
                return squashed, of_squashed
        return candidate, findings

    async def _push(self, now: _Publication) -> timedelta:
        remote = await self._find_remote(now)
        if remote == now.head:
            return await self._note(now)
        if now.head not in now.work.task.pushed_shas:
            return await self._intend(now)
        if not _is_ours(now.work.task, remote) and not await self._is_ancestor(now, remote):
            return await self._join(now, remote)
        outcome = await now.repository.push(
            now.credential,
            now.ref,
            now.head,
            remote if now.ref == now.branch_ref else None,
            options=() if now.by_push is None else now.by_push.options,
        )
        match outcome.result:
            case PushResult.PUSHED | PushResult.UP_TO_DATE:
                return await self._note(now)
            case PushResult.STALE:
                return _SOON
            case PushResult.UNREACHABLE:
                raise RemoteUnreachable("push", outcome.reason)
        if now.by_push is not None and NO_OPTIONS in outcome.reason:
            return await self._push(replace(now, by_push=None))
        raise Blocked(
            WaitKind.FORGE,
            f"The forge does not accept the branch {now.work.branch}: {outcome.reason} The work is kept.",
        )

    async def _intend(self, now: _Publication) -> timedelta:
        """Record what will be pushed: only such a commit may be overwritten later."""
        task = now.work.task
        values = {"pushed_shas": [*task.pushed_shas, now.head]}
        await self._transitions.commit(task, TaskMove(values=values))
        return AGAIN

    async def _find_remote(self, now: _Publication) -> str | None:
        if now.by_push is None or now.ref == now.branch_ref:
            ref = now.branch_ref
            return (await now.repository.ls_remote(now.credential, ref)).get(ref)
        heads = (await list_pull_heads(now.credential, now.by_push.heads)).values()
        own = [sha for sha in reversed(now.work.task.pushed_shas) if sha in heads]
        return own[0] if own else None

    async def _is_ancestor(self, now: _Publication, remote: str | None) -> bool:
        return remote is None or (
            await now.repository.has(remote) and await now.repository.is_ancestor(remote, now.head)
        )

    async def _note(self, now: _Publication) -> timedelta:
        task, branch = now.work.task, now.work.branch
        pushed = TaskPushed(
            task_id=task.id,
            cause=Cause.TASK,
            actor=SERVER,
            reason=f"Pushed {now.head[:12]} to {branch}.",
            branch=branch,
            sha=now.head,
        )
        move = TaskMove(values={"published_sha": now.head}, events=[pushed])
        await self._transitions.commit(task, move)
        return AGAIN

    async def _join(self, now: _Publication, remote: str | None) -> timedelta:
        """Merge commits that somebody else has pushed to the branch; they are never overwritten."""
        repository = now.repository
        if remote is None or not await repository.has(remote):
            return _SOON  # pushed since the mirror was fetched
        if await repository.is_ancestor(now.head, remote):
            reason = "Somebody pushed to the branch."
            return await self._adopt(now.work, repository, remote, reason=reason, joined=remote)
        merge = await repository.merge(now.head, remote)
        if merge.tree is None:
            return await self._tell_conflict(now, remote, [*merge.conflicts])
        merged = await self._commit_merge(now, remote, merge.tree)
        reason = "Merged what somebody pushed to the branch; the checks run again."
        return await self._adopt(now.work, repository, merged, reason=reason, joined=remote)

    async def _commit_merge(self, now: _Publication, remote: str, tree: str) -> str:
        identity = identity_of(await self._forges.find_row(now.work.repository.forge_id))
        envs = {
            "GIT_AUTHOR_NAME": identity.name,
            "GIT_AUTHOR_EMAIL": identity.email,
            "GIT_COMMITTER_NAME": identity.name,
            "GIT_COMMITTER_EMAIL": identity.email,
        }
        message = f"Merge {remote[:12]} into {now.work.branch}\n"
        made = await now.repository.git(
            *("commit-tree", tree, "-p", now.head, "-p", remote), stdin=message.encode(), envs=envs
        )
        return made.text

    async def _tell_conflict(self, now: _Publication, remote: str, paths: list[str]) -> timedelta:
        used = await self._sandboxes.use(now.work)
        await self._checkout.bring(used, now.work.task, now.repository, remote)
        await self._tasks.add_message(
            now.work.task.id,
            origin=MessageOrigin.CONFLICT,
            origin_ref=remote,
            text=(
                f"Somebody pushed {remote} to the branch, and it conflicts with your commits in: {', '.join(paths)}. "
                f"Run `git merge {remote}`, resolve the conflicts so that both changes stay, and commit."
            ),
        )
        move = TaskMove(stage=Stage.FIXING, reason="Another commit on the branch conflicts.")
        await self._transitions.commit(now.work.task, move)
        return AGAIN

    async def _adopt(
        self,
        work: TaskWork,
        repository: BareRepository,
        sha: str,
        *,
        reason: str,
        joined: str | None = None,
    ) -> timedelta:
        """Put the sandbox to a commit of the server, so that what is published is always a head that was saved."""
        used, task = await self._sandboxes.use(work), work.task
        settled = await self._checkout.settle(used, task, message=conventional(task.title))
        values: dict[str, Any] = {"head_sha": settled.head}
        if settled.head == task.head_sha:
            await self._checkout.adopt(used, task, repository, sha)
            values = {"head_sha": sha}
            if joined is not None:
                values["report"] = {**task.report, _JOINED: joined}
        elif settled.head is None:
            raise Blocked(WaitKind.RUN_FAILED, settled.problem or "The branch cannot be published.")
        await self._saves.take(task, used, cause="publishing")
        stage = None if joined is None else Stage.CHECKING
        await self._transitions.commit(task, TaskMove(stage=stage, reason=reason, values=values))
        return AGAIN


def _is_ours(task: Task, remote: str | None) -> bool:
    """Whether the branch is as this task left it, without a commit of anybody else."""
    return remote is None or (remote in task.pushed_shas and _JOINED not in task.report)


def _access_for(findings: Findings) -> GitAccess:
    changes_workflows = any(path.startswith(_WORKFLOWS) for path in findings.protected_paths)
    return GitAccess.WORKFLOWS if changes_workflows else GitAccess.WRITE


def title_of(work: TaskWork) -> str:
    """Return the title of the pull request: the agent's, or the task's."""
    return str(work.task.report.get("title") or work.task.title)
