from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from sandbox_client.models import (
    Page,
    SandboxRead,
    TaskAttemptRead,
    TaskCheckRead,
    TaskDiff,
    TaskLogItem,
    TaskMessageRead,
    TaskPullRead,
    TaskRead,
    TaskRunRead,
    TaskSaveRead,
    TaskSaveRestore,
)
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import PLACED, WORKED_IN, may_fail_with
from sandbox_server.http.deps import Operator, Reader, TaskIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import (
    DEFAULT_LIMIT,
    Cursor,
    Limit,
    page_of,
    read_id,
    read_number,
    respond_with_page,
)
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.http.sse import EVENT_STREAM, EVENTS_OVER, ListenerDep
from sandbox_server.sandboxes.views import SandboxViews
from sandbox_server.tasks.api import TasksDep
from sandbox_server.tasks.history import TaskHistory
from sandbox_server.tasks.log_source import TaskLogSource
from sandbox_server.tasks.views import (
    view_attempt,
    view_check,
    view_diff,
    view_message,
    view_pull,
    view_run,
    view_save,
    view_task,
)

HistoryDep = Annotated[TaskHistory, depends_on(TaskHistory)]
ViewsDep = Annotated[SandboxViews, depends_on(SandboxViews)]
RestoreBody = Annotated[TaskSaveRestore, Body(default_factory=TaskSaveRestore)]
SaveNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]
AttemptNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]
_POINTS = "`base`, `head`, `published`, `run:N` (after run N), `save:N` or `attempt:N`."
Point = Annotated[str, Query(max_length=20, description=_POINTS)]
OldPoint = Annotated[str, Query(alias="from", max_length=20, description=_POINTS)]
ChangedPath = Annotated[
    str | None, Query(max_length=4096, description="Only this file or directory.")
]

OF_GIT = (
    *(errors.GitError, errors.GitUnavailable, errors.GitTimedOut, errors.RemoteUnreachable),
    *(errors.RemoteRefused, errors.RepositoryTooLarge, errors.CommitNotFound, errors.BundleRefused),
    *(errors.ForgeError, errors.ForgeNotFound),
)

router = APIRouter(route_class=JsonRoute, prefix="/v1/tasks/{task_id}", tags=["tasks"])


@router.get("/runs")
async def list_task_runs(
    task_id: TaskIdPath,
    caller: Reader,
    history: HistoryDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskRunRead]:
    """List the runs of the agent, the setup and the checks, oldest first."""
    after = read_number(cursor) or 0
    rows = await history.list_runs(caller, task_id, after=after, limit=limit + 1)
    return page_of(rows, [view_run(row) for row in rows], limit=limit, position=lambda r: r.number)


@router.get("/attempts")
async def list_task_attempts(
    task_id: TaskIdPath, caller: Reader, history: HistoryDep
) -> Page[TaskAttemptRead]:
    """List the attempts at a task in one page: their agents, what came of each, and which one was chosen."""
    attempts = [view_attempt(row) for row in await history.list_attempts(caller, task_id)]
    return Page(items=attempts, next_cursor=None)


@router.post("/attempts/{number}/choose", status_code=202)
@may_fail_with(errors.AttemptNotFound, errors.InvalidStage)
async def choose_task_attempt(
    task_id: TaskIdPath, number: AttemptNumber, caller: Operator, tasks: TasksDep
) -> TaskRead:
    """Choose an attempt instead of the server. The task goes on with it once it has finished; attempts that still work are ended."""
    return view_task(await tasks.choose_attempt(caller, task_id, number))


@router.get("/messages")
async def list_task_messages(
    task_id: TaskIdPath,
    caller: Reader,
    history: HistoryDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskMessageRead]:
    """List what the agent was told, or will be, oldest first."""
    rows = await history.list_messages(
        caller, task_id, after=read_id(cursor) or "", limit=limit + 1
    )
    items = [view_message(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/saves")
async def list_task_saves(
    task_id: TaskIdPath,
    caller: Reader,
    history: HistoryDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskSaveRead]:
    """List the saves of the work, oldest first. They outlive the sandbox."""
    after = read_number(cursor) or 0
    rows = await history.list_saves(caller, task_id, after=after, limit=limit + 1)
    return page_of(rows, [view_save(row) for row in rows], limit=limit, position=lambda r: r.number)


@router.post("/saves", status_code=201)
@may_fail_with(*WORKED_IN, errors.InvalidStage, errors.SaveFailed, errors.SaveTooLarge, *OF_GIT)
async def save_task(task_id: TaskIdPath, caller: Operator, history: HistoryDep) -> TaskSaveRead:
    """Save the work as it is now. If nothing has changed, the last save is returned."""
    return view_save(await history.save_now(caller, task_id))


@router.get(
    "/saves/{number}/content",
    response_class=Response,
    responses={200: {"content": {"application/x-git-bundle": {}}}},
)
@may_fail_with(errors.SaveNotFound)
async def read_task_save(
    task_id: TaskIdPath, number: SaveNumber, caller: Operator, history: HistoryDep
) -> Response:
    """Download a save as a git bundle. In a clone of the repository: `git fetch FILE refs/sandbox/save`.

    Large files of Git LFS are pointers in it. Restoring the save brings their contents back.
    """
    content = await history.read_save(caller, task_id, number)
    return Response(content, media_type="application/x-git-bundle")


@router.post("/saves/{number}/restore", status_code=201)
@may_fail_with(
    *PLACED,
    *WORKED_IN,
    *OF_GIT,
    errors.SaveNotFound,
    errors.CheckoutFailed,
    errors.CheckoutRefused,
    errors.RepositoryNotFound,
)
async def restore_task_save(
    task_id: TaskIdPath,
    number: SaveNumber,
    caller: Operator,
    history: HistoryDep,
    views: ViewsDep,
    idempotency: IdempotencyDep,
    body: RestoreBody,
) -> SandboxRead:
    """Create a sandbox of your own with the work of a save in it. The task goes on in its own sandbox."""
    row = await history.restore(
        caller, task_id, number, template=body.template, idempotency=idempotency.of(body)
    )
    return await views.view(row, caller)


@router.get("/pull-request")
@may_fail_with(errors.PullNotFound)
async def get_task_pull_request(
    task_id: TaskIdPath, caller: Reader, history: HistoryDep
) -> TaskPullRead:
    """Get the pull request of a task, as its forge last described it."""
    return view_pull(await history.get_pull(caller, task_id))


@router.get("/checks")
async def list_task_checks(
    task_id: TaskIdPath, caller: Reader, history: HistoryDep
) -> Page[TaskCheckRead]:
    """List the checks of the published work at the forge, in one page."""
    checks = [view_check(row) for row in await history.list_checks(caller, task_id)]
    return Page(items=checks, next_cursor=None)


@router.get("/diff")
@may_fail_with(errors.InvalidRequest, errors.SaveNotFound, errors.RepositoryNotFound, *OF_GIT)
async def get_task_diff(
    task_id: TaskIdPath,
    caller: Operator,
    history: HistoryDep,
    old: OldPoint = "base",
    to: Point = "head",
    path: ChangedPath = None,
) -> TaskDiff:
    """Compare two states of the work. This reads the server's copy, so it works after the sandbox is gone."""
    return view_diff(await history.diff(caller, task_id, old=old, new=to, path=path))


@router.get(
    "/log",
    response_model=Page[TaskLogItem],
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
)
async def read_task_log(
    task_id: TaskIdPath,
    caller: Reader,
    tasks: TasksDep,
    history: HistoryDep,
    listener: ListenerDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Read what happens to a task, to its sandboxes and in them, in one order. With `Accept: text/event-stream`, stream until it has ended."""
    await tasks.get(caller, task_id)
    source = TaskLogSource(tenant_id=caller.tenant_id, task_id=task_id)
    if listener.asks_for_events:
        return await listener.stream(source)
    begin = read_number(cursor) or listener.after or 0
    return respond_with_page(await history.read_log(source, after=begin, limit=limit))
