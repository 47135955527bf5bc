from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Unpack

from sandbox_client import models
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.repositories import Repositories
from sandbox_client._sync.streams import read_log
from sandbox_client.events import LogItem
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import TaskOptions


class Tasks(Repositories):
    """Tasks: from an issue or a text to a pull request."""

    def create_task(self, repository: str, **options: Unpack[TaskOptions]) -> models.TaskRead:
        """Create a task for a repository, which is named by its id or its full name."""
        fields = {"repository": repository, **options}
        request = create("/v1/tasks", request_body(models.TaskCreate, fields))
        return self._transport.fetch(models.TaskRead, request)

    def list_tasks(
        self,
        *,
        repository: str | None = None,
        stages: Iterable[models.TaskStage | str] = (),
        states: Iterable[models.TaskState | str] = (),
        archived: bool = False,
    ) -> Generator[models.TaskRead, None, None]:
        """List tasks, newest first."""
        query = {
            "repository": repository,
            "stage": [models.TaskStage(stage).value for stage in stages],
            "state": [models.TaskState(state).value for state in states],
            "archived": "true" if archived else None,
        }
        return list_all(self._transport, "/v1/tasks", models.Page[models.TaskRead], query)

    def list_task_overlaps(self, *, repository: str | None = None) -> models.TaskOverlaps:
        """Predict which open tasks would conflict, from their latest saves."""
        request = call("GET", "/v1/tasks/overlaps", query={"repository": repository})
        return self._transport.fetch(models.TaskOverlaps, request)

    def get_task(self, task_id: str) -> models.TaskRead:
        """Get a task: its stage, why it is there, and what it waits for."""
        return self._transport.fetch(models.TaskRead, call("GET", _path(task_id)))

    def send_task_message(
        self, task_id: str, text: str, *, interrupt: bool = False
    ) -> models.TaskMessageRead:
        """Send the agent a message: the next run gets it, and `interrupt` ends the current run."""
        body = models.TaskMessageCreate(text=text, interrupt=interrupt)
        request = call("POST", _path(task_id, "messages"), body)
        return self._transport.fetch(models.TaskMessageRead, request)

    def cancel_task(self, task_id: str) -> models.TaskRead:
        """Cancel a task: its work is saved, then its sandbox is deleted."""
        request = call("POST", _path(task_id, "cancel"), may_repeat=True)
        return self._transport.fetch(models.TaskRead, request)

    def retry_task(self, task_id: str) -> models.TaskRead:
        """Go on with a task that waits, failed, timed out or was cancelled."""
        return self._transport.fetch(models.TaskRead, call("POST", _path(task_id, "retry")))

    def approve_task(self, task_id: str, *, head: str | None = None) -> models.TaskRead:
        """Publish work that the server refused to publish; with `head` only if it is still that commit."""
        body = request_body(models.TaskApprove, {"head": head})
        return self._transport.fetch(models.TaskRead, call("POST", _path(task_id, "approve"), body))

    def archive_task(self, task_id: str) -> models.TaskRead:
        """Leave an ended task out of lists."""
        request = call("POST", _path(task_id, "archive"), may_repeat=True)
        return self._transport.fetch(models.TaskRead, request)

    def list_task_runs(self, task_id: str) -> Generator[models.TaskRunRead, None, None]:
        """List the runs of the agent, the setup and the checks, oldest first."""
        return list_all(self._transport, _path(task_id, "runs"), models.Page[models.TaskRunRead])

    def list_task_attempts(self, task_id: str) -> Generator[models.TaskAttemptRead, None, None]:
        """List the attempts at a task: their agents, what came of each, and which one was chosen."""
        return list_all(
            self._transport, _path(task_id, "attempts"), models.Page[models.TaskAttemptRead]
        )

    def choose_task_attempt(self, task_id: str, number: int) -> models.TaskRead:
        """Choose an attempt instead of the server; the task goes on with it once it has finished."""
        request = call("POST", _path(task_id, f"attempts/{number}/choose"), may_repeat=True)
        return self._transport.fetch(models.TaskRead, request)

    def list_task_messages(self, task_id: str) -> Generator[models.TaskMessageRead, None, None]:
        """List what the agent was told, or will be, oldest first."""
        return list_all(
            self._transport, _path(task_id, "messages"), models.Page[models.TaskMessageRead]
        )

    def list_task_saves(self, task_id: str) -> Generator[models.TaskSaveRead, None, None]:
        """List the saves of the work, oldest first."""
        return list_all(self._transport, _path(task_id, "saves"), models.Page[models.TaskSaveRead])

    def save_task(self, task_id: str) -> models.TaskSaveRead:
        """Save the work as it is now."""
        request = call("POST", _path(task_id, "saves"), may_repeat=True)
        return self._transport.fetch(models.TaskSaveRead, request)

    def read_task_save(self, task_id: str, number: int) -> bytes:
        """Download a save as a git bundle."""
        request = call("GET", _path(task_id, f"saves/{number}/content"))
        return (self._transport.send(request)).content

    def restore_task_save(
        self, task_id: str, number: int, *, template: str | None = None
    ) -> models.SandboxRead:
        """Create a sandbox of your own with the work of a save in it."""
        body = request_body(models.TaskSaveRestore, {"template": template})
        request = create(_path(task_id, f"saves/{number}/restore"), body)
        return self._transport.fetch(models.SandboxRead, request)

    def get_task_pull_request(self, task_id: str) -> models.TaskPullRead:
        """Get the pull request of a task, as its forge last described it."""
        request = call("GET", _path(task_id, "pull-request"))
        return self._transport.fetch(models.TaskPullRead, request)

    def list_task_checks(self, task_id: str) -> Generator[models.TaskCheckRead, None, None]:
        """List the checks of the published work at the forge."""
        return list_all(
            self._transport, _path(task_id, "checks"), models.Page[models.TaskCheckRead]
        )

    def get_task_diff(
        self, task_id: str, *, old: str = "base", new: str = "head", path: str | None = None
    ) -> models.TaskDiff:
        """Compare two of `base`, `head`, `published`, `run:N`, `save:N` and `attempt:N`."""
        query: Mapping[str, str | None] = {"from": old, "to": new, "path": path}
        return self._transport.fetch(
            models.TaskDiff, call("GET", _path(task_id, "diff"), query=query)
        )

    def task_log(
        self,
        task_id: str,
        *,
        after: int | None = None,
        tail: int | None = None,
        follow: bool = True,
    ) -> Generator[LogItem, None, None]:
        """Give what happens to a task, to its sandboxes and in them, until it has ended."""
        return read_log(
            self._transport,
            _path(task_id, "log"),
            after=after,
            tail=tail,
            sources=(),
            follow=follow,
        )


def _path(task_id: str, part: str = "") -> str:
    path = f"/v1/tasks/{segment(task_id)}"
    return f"{path}/{part}" if part else path
