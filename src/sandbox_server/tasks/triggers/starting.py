from datetime import datetime

from sandbox_server.db.models import Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.tasks.stages import MessageOrigin, TaskSource
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.creation import TaskRequest
from sandbox_server.tasks.following.failure_logs import FailureReport
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.triggers.payloads import DeliveredComment
from sandbox_server.tasks.triggers.repository import TriggerRepository
from sandbox_server.tasks.triggers.trigger import Result, Trigger


class TaskStarter:
    """Starts the task of a delivery once, if whoever caused the delivery may start one."""

    def __init__(self, sessions: Sessions, repositories: Repositories, tasks: Tasks) -> None:
        self._sessions = sessions
        self._repositories = repositories
        self._tasks = tasks

    async def start(
        self,
        trigger: Trigger,
        request: TaskRequest,
        *,
        then: tuple[str, FailureReport] | None = None,
    ) -> Result:
        """Create the task unless this was done before; a retried or replayed delivery creates nothing."""
        if await self._has_acted_on(trigger, request.data["trigger"]):
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

    async def hear(
        self, trigger: Trigger, comment: DeliveredComment, request: TaskRequest
    ) -> Result:
        """Tell a comment to the open task of its subject; start one if there is none."""
        assert request.source_ref is not None
        async with without_transaction(self._sessions) as session:
            task = await TriggerRepository(session).find_open(
                trigger.repository.id, request.source, request.source_ref
            )
        if task is None:
            return await self.start(trigger, request)
        return await self._tell(trigger, task, comment, request)

    async def find_refusal(
        self, trigger: Trigger, *, of_person: bool = True, pushes: bool = True
    ) -> str | None:
        """Return why the delivery may not start anything, if so."""
        if trigger.repository.triggers_paused_reason is not None:
            return f"Ignored: triggers are paused. {trigger.repository.triggers_paused_reason}"
        if pushes and trigger.repository.may_push is False:
            return "Ignored: the forge's credential may not push to the repository."
        if of_person and (refusal := await _find_refusal_of_actor(trigger)):
            return refusal
        async with without_transaction(self._sessions) as session:
            failed = await TriggerRepository(session).list_failed_in_a_row(trigger.repository.id)
        if not failed:
            return None
        reason = f"The last {len(failed)} tasks failed: {failed[0].stage_reason}"
        await self._repositories.pause_triggers(trigger.repository.id, reason=reason)
        return f"Ignored: triggers were paused. {reason}"

    async def was_worked_on(self, trigger: Trigger, since: datetime) -> bool:
        """Return whether an issue had a task at an instant or later."""
        assert trigger.number is not None
        async with without_transaction(self._sessions) as session:
            return await TriggerRepository(session).had_task_since(
                trigger.repository.id, trigger.number, since
            )

    async def find_refusal_of_comment(
        self, trigger: Trigger, comment: DeliveredComment
    ) -> str | None:
        """Return why a comment may not start anything, if so."""
        word = trigger.settings.triggers.mention
        if trigger.number is None or word is None or word.lower() not in comment.body.lower():
            return "Ignored: the agent is not mentioned."
        if trigger.listeners.is_own(trigger.actor, comment.body):
            return "Ignored: written by this server."
        return await self.find_refusal(trigger)

    async def _tell(
        self, trigger: Trigger, task: Task, comment: DeliveredComment, request: TaskRequest
    ) -> Result:
        known = Result("Ignored: it was told before.")
        if await self._has_acted_on(trigger, request.data["trigger"]):
            return known
        added = await self._tasks.add_message(
            task.id,
            origin=MessageOrigin.COMMENT,
            origin_ref=comment.ref,
            text=comment.text,
            author=trigger.actor,
            data={"remarks": [comment.ref], "by_bot": trigger.delivery.actor_is_bot},
        )
        return Result(f"Task {task.id} was told.") if added else known

    async def _has_acted_on(self, trigger: Trigger, ref: str) -> bool:
        async with without_transaction(self._sessions) as session:
            return await TriggerRepository(session).has_acted_on(trigger.repository.id, ref)


async def _find_refusal_of_actor(trigger: Trigger) -> str | None:
    listeners = trigger.listeners
    if listeners.is_own(trigger.actor):
        return "Ignored: caused by this server."
    if not await listeners.counts(trigger.actor, is_bot=trigger.delivery.actor_is_bot):
        return (
            f"Ignored: {trigger.actor or 'somebody'} has no write permission and is not listed in "
            "triggers.users."
        )
    return None


def request_of_comment(
    trigger: Trigger,
    comment: DeliveredComment,
    source: TaskSource,
    *,
    title: str,
    base: str | None = None,
) -> TaskRequest:
    """Describe the task that a comment asks for. A comment that is delivered in two ways starts one."""
    return TaskRequest(
        source=source,
        source_ref=trigger.number,
        source_url=comment.url,
        requester=trigger.actor,
        instructions=comment.text,
        title=title,
        base=base,
        data={"trigger": comment.ref, "remarks": [comment.ref]},
    )
