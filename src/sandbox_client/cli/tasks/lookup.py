import re
from collections.abc import Sequence

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.output.failures import CliError
from sandbox_client.errors import PullNotFound, TaskNotFound
from sandbox_client.models import TaskPullRead, TaskRead

_ID = re.compile(r"[a-z0-9]{20}")
_SHORTEST_END = 3
_MOST_NAMED = 5
_LIST = "List tasks with `sbx task list --all`."


async def find_task(client: AsyncSandboxClient, named: str) -> TaskRead:
    """Find a task by its id or the end of it."""
    if _ID.fullmatch(named):
        try:
            return await client.get_task(named)
        except TaskNotFound:
            raise _unknown(named) from None
    if len(named) < _SHORTEST_END:
        raise CliError(
            f"{named!r} is too short for the end of an id.",
            advice=f"Give at least {_SHORTEST_END} characters. {_LIST}",
        )
    found = [task async for task in client.list_tasks(archived=True) if task.id.endswith(named)]
    open_ = [task for task in found if task.ended_at is None]
    meant = open_ or found
    if not meant:
        raise _unknown(named)
    if len(meant) > 1:
        raise _ambiguous(named, meant)
    return meant[0]


async def find_pull(client: AsyncSandboxClient, task_id: str) -> TaskPullRead | None:
    """Find the pull request of a task; None if it has none yet."""
    try:
        return await client.get_task_pull_request(task_id)
    except PullNotFound:
        return None


def _unknown(named: str) -> CliError:
    return CliError(f"Task {named!r} not found.", advice=_LIST, code="task-not-found")


def _ambiguous(named: str, tasks: Sequence[TaskRead]) -> CliError:
    ids = ", ".join(task.id for task in tasks[:_MOST_NAMED])
    return CliError(f"{named!r} is ambiguous: {ids}.", advice="Use the id.", code="ambiguous")
