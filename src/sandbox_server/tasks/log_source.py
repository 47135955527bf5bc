"""Events of a task, events of its sandboxes, and output of what runs in them, in one stream under one numbering."""

from dataclasses import dataclass, replace

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.events.log_source import LogKind, LogSource
from sandbox_server.log.source import Page
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository

KINDS = frozenset({LogKind.EVENTS, LogKind.COMMAND, LogKind.AGENT})


@dataclass(frozen=True, kw_only=True)
class TaskLogSource:
    """The log of a task, until it has ended. A sandbox that replaces a lost one joins it."""

    tenant_id: str
    task_id: str

    @property
    def topic(self) -> str:
        return f"task/{self.task_id}"

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        source = await self._of_now(sessions)
        page = await source.read(sessions, after=after, limit=limit)
        return replace(page, topic=source.topic)

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        return await (await self._of_now(sessions)).find_tail(sessions, count=count)

    async def _of_now(self, sessions: Sessions) -> LogSource:
        """Find the sandboxes that the task has had until now."""
        async with without_transaction(sessions) as session:
            found = await TaskRepository(session).find(self.task_id)
            sandboxes = {*await TaskHistoryRepository(session).list_sandboxes(self.task_id)}
            attempts = await TaskRepository(session).list_attempts(self.task_id)
        sandboxes |= {each.sandbox_id for each in attempts if each.sandbox_id is not None}
        if found is not None and found[0].sandbox_id is not None:
            sandboxes.add(found[0].sandbox_id)
        return LogSource(
            tenant_id=self.tenant_id,
            sandbox_ids=tuple(sorted(sandboxes)),
            kinds=KINDS,
            task_id=self.task_id,
        )
