"""How a task stands: what is printed at the end, and the exit code."""

from collections.abc import Iterator

from sandbox_client.cli.output.failures import FAILED
from sandbox_client.cli.output.output import Output
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import TaskPullRead, TaskRead, TaskStage, TaskState, TaskWait

WAITS_FOR_USER = 3
_DONE = frozenset({TaskState.COMPLETED, TaskState.IDLE})
_ENDED = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.TIMED_OUT}
)
_COMMANDS = {
    "message": 'sbx task message {id} "…"',
    "choose": "sbx task choose {id} NUMBER",
    "approve": "sbx task approve {id}",
    "retry": "sbx task retry {id}",
    "cancel": "sbx task cancel {id}",
}


def is_at_rest(task: TaskRead, *, until_end: bool) -> bool:
    """Return whether nothing happens until a person does something."""
    if task.state in _ENDED or task.state is TaskState.WAITING_FOR_USER:
        return True
    return task.state is TaskState.IDLE and not until_end


def exit_code_of(task: TaskRead) -> int:
    """Return 0 if the work is published or done, 3 if the task waits for the user, 1 if it has failed."""
    if task.state in _DONE:
        return 0
    return WAITS_FOR_USER if task.state is TaskState.WAITING_FOR_USER else FAILED


def print_outcome(output: Output, task: TaskRead, pull: TaskPullRead | None) -> None:
    """Print how the task stands, and last the URL of its pull request."""
    for line in describe_outcome(task):
        output.note(line)
    if output.as_json:
        output.print_model(task)
    elif pull is not None:
        output.print(escape_controls(pull.url))
    elif task.published_sha is not None:
        output.print(escape_controls(f"{task.branch} {task.published_sha}"))


def describe_outcome(task: TaskRead) -> Iterator[str]:
    reason = f": {task.stage_reason}" if task.stage_reason else "."
    yield f"Task {task.id} is {words_of(task.stage)}{reason}"
    if task.waits_for is not None:
        yield from _actions(task, task.waits_for)
    elif exit_code_of(task) == FAILED:
        yield f"Its work is kept: sbx task diff {task.id}"
        yield f"Go on with it: sbx task retry {task.id}"


def _actions(task: TaskRead, waits: TaskWait) -> Iterator[str]:
    if waits.text not in (task.stage_reason or ""):
        yield waits.text
    known = [_COMMANDS[each].format(id=task.id) for each in waits.actions if each in _COMMANDS]
    if known:
        yield f"What you can do: {'; '.join(known)}"


def words_of(stage: TaskStage) -> str:
    return stage.value.replace("-", " ")
