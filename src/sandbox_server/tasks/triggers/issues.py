from datetime import datetime

from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.forges import PullFacts, PullLifecycle
from sandbox_server.domain.tasks.stages import TaskSource
from sandbox_server.tasks.creation import TaskRequest
from sandbox_server.tasks.outbox_repository import Outbox
from sandbox_server.tasks.triggers.payloads import DeliveredComment
from sandbox_server.tasks.triggers.starting import TaskStarter, request_of_comment
from sandbox_server.tasks.triggers.trigger import Result, Trigger

_LONGEST_TITLE = 200


class IssueTriggers:
    """Labels and mentions: on issues, and on pull requests that people have opened."""

    def __init__(self, sessions: Sessions, starter: TaskStarter) -> None:
        self._sessions = sessions
        self._starter = starter

    async def label(
        self, trigger: Trigger, labels: set[str], *, late_at: datetime | None = None
    ) -> Result:
        """Start a task for an issue that got a label; a late one must not have started a task that has ended since."""
        if not labels & set(trigger.settings.triggers.labels) or trigger.number is None:
            return Result("Ignored: no label of the repository's triggers was added.")
        if refusal := await self._starter.find_refusal(trigger):
            return Result(refusal)
        if late_at is not None and await self._starter.was_worked_on(trigger, late_at):
            return Result("Ignored: a task has worked on the issue since then.")
        request = TaskRequest(
            source=TaskSource.ISSUE,
            source_ref=trigger.number,
            requester=trigger.actor,
            data={"trigger": trigger.ref},
        )
        return await self._starter.start(trigger, request)

    async def mention(self, trigger: Trigger, comment: DeliveredComment) -> Result:
        """Start a task for a comment on an issue that mentions the agent, or tell the task that is open."""
        if refusal := await self._starter.find_refusal_of_comment(trigger, comment):
            return Result(refusal)
        title = f"Issue #{trigger.number}"
        request = request_of_comment(trigger, comment, TaskSource.ISSUE, title=title)
        return await self._starter.hear(trigger, comment, request)

    async def mention_on_pull(self, trigger: Trigger, comment: DeliveredComment) -> Result:
        """Start a task on top of a person's pull request: its own branch, to be merged into theirs."""
        if refusal := await self._starter.find_refusal_of_comment(trigger, comment):
            return Result(refusal)
        assert trigger.number is not None
        pull = (await trigger.adapter.get_pull(trigger.facts, int(trigger.number))).value
        if pull is None or pull.lifecycle is not PullLifecycle.OPEN:
            return Result("Ignored: the pull request is not open.")
        if pull.head_repository_id != trigger.facts.external_id:
            return await self._refuse_fork(trigger, pull)
        title = f"Work on #{pull.number}: {pull.title}"[:_LONGEST_TITLE]
        request = request_of_comment(
            trigger, comment, TaskSource.MENTION, title=title, base=pull.head_ref
        )
        return await self._starter.hear(trigger, comment, request)

    async def _refuse_fork(self, trigger: Trigger, pull: PullFacts) -> Result:
        """Say once why nothing happens: a task's branch is pushed to the repository of its base."""
        async with self._sessions.begin() as session:
            await Outbox(session).put_comment(
                trigger.owner, key=f"fork/{pull.number}", number=pull.number, body=_FORK
            )
        return Result("Ignored: the head of the pull request is in another repository.")


_FORK = (
    "No task was started: the branch of this pull request is in a fork, and the server works only on branches of this "
    "repository. Push the branch here and open a pull request from it, or describe the change in an issue."
)
