"""The subcommand overlaps."""

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.output import Output
from sandbox_client.models import TaskOverlap, TaskOverlaps

_HEADS = ("KIND", "REPOSITORY", "TASKS", "FILES")
_SHOWN_FILES = 3


async def overlaps(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        found = await client.list_task_overlaps(repository=invocation.args.repository)
    if output.as_json:
        output.print_model(found)
        return
    output.print_table(_HEADS, [_row(each) for each in found.items])
    _tell(output, found)


def _row(overlap: TaskOverlap) -> tuple[str, ...]:
    files = ", ".join(overlap.files[:_SHOWN_FILES])
    others = overlap.file_count - _SHOWN_FILES
    more = f" and {others} more" if others > 0 else ""
    ids = " ".join(side.task_id for side in overlap.tasks)
    return overlap.kind, overlap.repository, ids, files + more


def _tell(output: Output, found: TaskOverlaps) -> None:
    if not found.items:
        output.note(f"No overlaps among {found.compared} open tasks with saved changes.")
    if found.is_cut:
        output.note("There are more tasks than were compared. Select some with --repository.")
    for task in found.skipped:
        output.note(f"Not compared: {task.task_id}: {task.reason}")
