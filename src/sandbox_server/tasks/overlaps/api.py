from typing import Annotated, Final

from fastapi import APIRouter

from sandbox_client.models import TaskNotCompared, TaskOverlap, TaskOverlapSide
from sandbox_client.models import TaskOverlaps as TaskOverlapsRead
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Reader, depends_on
from sandbox_server.tasks.api import OfRepository
from sandbox_server.tasks.overlaps.repository import OpenWork
from sandbox_server.tasks.overlaps.service import Overlap, Overlaps, TaskOverlaps

_MOST_FILES: Final = 100

OverlapsDep = Annotated[TaskOverlaps, depends_on(TaskOverlaps)]

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])


@router.get("/overlaps")
@may_fail_with(errors.RepositoryNotFound, errors.InvalidRequest)
async def list_task_overlaps(
    caller: Reader, overlaps: OverlapsDep, repository: OfRepository = None
) -> TaskOverlapsRead:
    """Predict which open tasks of a repository would conflict, and which have made the same changes.

    The latest saves of the 20 tasks that were saved last are merged pairwise in the server's copy, those with the same base branch. Nothing is changed.
    """
    return view_overlaps(await overlaps.find(caller, repository))


def view_overlaps(overlaps: Overlaps) -> TaskOverlapsRead:
    return TaskOverlapsRead(
        items=[_view_overlap(each) for each in overlaps.found],
        compared=overlaps.compared,
        is_cut=overlaps.is_cut,
        skipped=[
            TaskNotCompared(task_id=task_id, reason=reason)
            for task_id, reason in overlaps.skipped.items()
        ],
    )


def _view_overlap(overlap: Overlap) -> TaskOverlap:
    repository, comparison = overlap.one.repository, overlap.comparison
    return TaskOverlap(
        repository_id=repository.id,
        repository=repository.full_name,
        base=overlap.one.task.base_ref,
        kind="identical" if comparison.is_identical else "conflict",
        tasks=[_view_side(overlap.one), _view_side(overlap.other)],
        files=list(comparison.files[:_MOST_FILES]),
        file_count=len(comparison.files),
    )


def _view_side(work: OpenWork) -> TaskOverlapSide:
    return TaskOverlapSide(
        task_id=work.task.id,
        title=work.task.title,
        stage=work.task.stage,
        save=work.save.number,
        sha=work.save.sha,
        saved_at=work.save.created_at,
    )
