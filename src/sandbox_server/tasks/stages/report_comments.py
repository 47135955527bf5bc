from datetime import timedelta

from sandbox_server.db.models import ForgeWrite
from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.forges import PullLifecycle
from sandbox_server.domain.tasks.stages import Stage, TaskSource
from sandbox_server.forges.service import Forges
from sandbox_server.tasks.markers import without_markers
from sandbox_server.tasks.outbox_repository import Outbox, WriteOwner
from sandbox_server.tasks.stages.work import AGAIN, TaskWork
from sandbox_server.tasks.transitions import TaskTransitions

_SOON = timedelta(seconds=2)
_LONGEST = 60_000  # GitHub takes 65,536 characters


class ReportComments:
    """Publishes the report of a task as a comment instead of its commits; nothing is pushed."""

    def __init__(self, sessions: Sessions, forges: Forges, transitions: TaskTransitions) -> None:
        self._sessions = sessions
        self._forges = forges
        self._transitions = transitions

    async def publish(self, work: TaskWork) -> timedelta:
        """Comment on the open pull request of the base branch, or on the commit; end once that is written."""
        subject = await self._find_subject(work)
        owner, key = _owner_of(work), "report/" + "/".join(map(str, subject.values()))
        async with self._sessions.begin() as session:
            outbox = Outbox(session)
            await outbox.put_comment(owner, key=key, body=_body(work), **subject)
            written = await outbox.get(owner, kind="comment", key=key)
        if written.done_at is None:
            return _SOON
        await self._transitions.commit(work.task, work.ending(Stage.DONE, _said(written)))
        return AGAIN

    async def _find_subject(self, work: TaskWork) -> dict[str, str | int]:
        adapter = await self._forges.adapter(work.repository.forge_id)
        pull = await adapter.find_pull(work.facts, work.task.base_ref)
        if pull is not None and pull.lifecycle is PullLifecycle.OPEN:
            return {"number": pull.number}
        return {"sha": _commit_of(work)}


def _owner_of(work: TaskWork) -> WriteOwner:
    """Let the next fix of the same pull request edit the comment of this one; other tasks have their own."""
    is_shared = work.task.source == TaskSource.CI_FIX
    return WriteOwner(
        forge_id=work.repository.forge_id,
        repository_id=work.repository.id,
        task_id=None if is_shared else work.task.id,
    )


def _commit_of(work: TaskWork) -> str:
    failed = work.task.labels.get("sha") if work.task.source == TaskSource.CI_FIX else None
    return str(failed or work.task.base_sha)


def _body(work: TaskWork) -> str:
    task, report = work.task, work.task.report
    text = str(report.get("body") or report.get("summary") or "").strip()
    heading = f"**{task.title}** (commit {_commit_of(work)})"
    shown = without_markers(text)[:_LONGEST] or "The agent reported nothing."
    return f"{heading}\n\n{shown}\n\nTask `{task.id}`: {task.agent or 'a command'}. Nothing was pushed."


def _said(written: ForgeWrite) -> str:
    if written.error is not None:
        return f"The report is in the task; it could not be written as a comment: {written.error}"
    return f"The report is a comment: {written.result.get('url') or written.key}"
