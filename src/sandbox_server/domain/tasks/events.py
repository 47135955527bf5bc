"""Events of tasks.

task.created
task.stage                  a stage was entered
task.message                the agent will be told something
task.checkout               the repository is checked out in a sandbox
task.run                    a run was started, or has ended
task.attempt                one of several attempts has entered a state
task.save                   the work was taken out of the sandbox and stored
task.pushed  task.pull      the branch was pushed; the pull request was opened, changed, merged or closed
task.waiting                the task cannot go on without a person
task.ended
"""

from collections.abc import Mapping
from typing import Any, Literal

from sandbox_server.domain.events import LoggedEvent
from sandbox_server.domain.tasks.stages import AttemptState, RunKind, RunOutcome, Stage


class TaskEvent(LoggedEvent):
    task_id: str


class TaskCreated(TaskEvent):
    type: Literal["task.created"] = "task.created"
    title: str
    repository: str
    source: str


class TaskStageEntered(TaskEvent):
    type: Literal["task.stage"] = "task.stage"
    stage: Stage
    before: Stage


class TaskMessageAdded(TaskEvent):
    type: Literal["task.message"] = "task.message"
    message_id: str
    origin: str
    author: str | None


class TaskCheckedOut(TaskEvent):
    type: Literal["task.checkout"] = "task.checkout"
    method: str
    seconds: float
    base_sha: str


class TaskRunChanged(TaskEvent):
    type: Literal["task.run"] = "task.run"
    number: int
    kind: RunKind
    command_id: str | None = None
    outcome: RunOutcome | None = None
    attempt: int | None = None


class TaskAttemptChanged(TaskEvent):
    type: Literal["task.attempt"] = "task.attempt"
    attempt: int
    state: AttemptState


class TaskSaved(TaskEvent):
    type: Literal["task.save"] = "task.save"
    number: int
    sha: str
    size: int
    files: int
    attempt: int | None = None


class TaskPushed(TaskEvent):
    type: Literal["task.pushed"] = "task.pushed"
    branch: str
    sha: str


class TaskPullChanged(TaskEvent):
    type: Literal["task.pull"] = "task.pull"
    number: int
    url: str
    lifecycle: str


class TaskWaiting(TaskEvent):
    type: Literal["task.waiting"] = "task.waiting"
    awaits: Mapping[str, Any]


class TaskEnded(TaskEvent):
    type: Literal["task.ended"] = "task.ended"
    stage: Stage
