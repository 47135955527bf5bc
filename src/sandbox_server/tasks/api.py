from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from sandbox_client.models import (
    Page,
    TaskApprove,
    TaskCreate,
    TaskMessageCreate,
    TaskMessageRead,
    TaskRead,
    TaskStage,
    TaskState,
)
from sandbox_server.domain import errors
from sandbox_server.domain.tasks.stages import ChoiceBy, Stage, TaskSource, state_of_task
from sandbox_server.events.event_source import EventSource
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Operator, Reader, TaskIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.http.sse import EVENT_STREAM, ListenerDep
from sandbox_server.log.event_repository import EventFilter
from sandbox_server.tasks.creation import AttemptRequest, TaskRequest
from sandbox_server.tasks.service import TaskQuery, Tasks
from sandbox_server.tasks.views import view_message, view_task

TasksDep = Annotated[Tasks, depends_on(Tasks)]
Stages = Annotated[
    list[TaskStage] | None, Query(alias="stage", description="Only tasks in these stages.")
]
States = Annotated[
    list[TaskState] | None, Query(alias="state", description="Only tasks in these states.")
]
OfRepository = Annotated[
    str | None, Query(max_length=255, description="Id or full name of a repository.")
]
Archived = Annotated[bool, Query(description="Include archived tasks.")]

router = APIRouter(route_class=JsonRoute, prefix="/v1/tasks", tags=["tasks"])

_TASK_EVENTS = EventFilter(types=frozenset({"task."}))


async def find_task_query(
    repository: OfRepository = None,
    stages: Stages = None,
    states: States = None,
    archived: Archived = False,  # noqa: FBT002 - a parameter of the query
) -> TaskQuery:
    return TaskQuery(repository=repository, stages=_stages(stages, states), archived=archived)


TaskQueryDep = Annotated[TaskQuery, Depends(find_task_query)]


@router.post("", status_code=201)
@may_fail_with(errors.RepositoryNotFound, errors.InvalidRequest, errors.TaskExists)
async def create_task(
    body: TaskCreate, idempotency: IdempotencyDep, caller: Operator, tasks: TasksDep
) -> TaskRead:
    """Create a task: an agent works on a repository in a sandbox, and the server publishes the result as a pull request.

    The task begins when a place is free. Follow it with `GET /v1/tasks/{task_id}/log`.
    """
    entry = await tasks.create(
        caller, body.repository, _to_request(body), idempotency=idempotency.of(body)
    )
    return view_task(entry)


@router.get("", response_model=Page[TaskRead], responses={200: EVENT_STREAM})
@may_fail_with(errors.RepositoryNotFound, errors.InvalidRequest)
async def list_tasks(
    caller: Reader,
    tasks: TasksDep,
    listener: ListenerDep,
    query: TaskQueryDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskRead] | Response:
    """List tasks, newest first. With `Accept: text/event-stream`, stream the events of all tasks instead."""
    if listener.asks_for_events:
        source = EventSource(tenant_id=caller.tenant_id, event_filter=_TASK_EVENTS)
        return await listener.stream(source)
    entries = await tasks.list_page(caller, query, limit=limit + 1, before=read_id(cursor))
    items = [view_task(entry) for entry in entries]
    return page_of(entries, items, limit=limit, position=lambda entry: entry.row.id)


@router.get("/{task_id}")
async def get_task(task_id: TaskIdPath, caller: Reader, tasks: TasksDep) -> TaskRead:
    """Get a task: its stage, why it is there, and what it waits for."""
    return view_task(await tasks.get(caller, task_id))


@router.post("/{task_id}/messages", status_code=201)
@may_fail_with(errors.InvalidStage)
async def send_task_message(
    task_id: TaskIdPath, body: TaskMessageCreate, caller: Operator, tasks: TasksDep
) -> TaskMessageRead:
    """Send the agent a message. The next run gets it; a task in `waiting-for-user` begins that run at once."""
    message = await tasks.send_message(caller, task_id, body.text, interrupt=body.interrupt)
    return view_message(message)


@router.post("/{task_id}/cancel", status_code=202)
@may_fail_with(errors.InvalidStage)
async def cancel_task(task_id: TaskIdPath, caller: Operator, tasks: TasksDep) -> TaskRead:
    """Cancel a task: its work is saved, then its sandbox is deleted. An open pull request stays open."""
    return view_task(await tasks.cancel(caller, task_id))


@router.post("/{task_id}/retry", status_code=202)
@may_fail_with(errors.InvalidStage, errors.TaskExists)
async def retry_task(task_id: TaskIdPath, caller: Operator, tasks: TasksDep) -> TaskRead:
    """Go on with a task that waits, has failed, timed out, or was cancelled. Saved work is restored; budgets begin anew."""
    return view_task(await tasks.retry(caller, task_id))


@router.post("/{task_id}/approve", status_code=202)
@may_fail_with(errors.InvalidStage)
async def approve_task(
    task_id: TaskIdPath, body: TaskApprove, caller: Operator, tasks: TasksDep
) -> TaskRead:
    """Publish work that the server refused to publish, for example a change of protected files or failing checks."""
    return view_task(await tasks.approve(caller, task_id, head=body.head))


@router.post("/{task_id}/archive")
@may_fail_with(errors.InvalidStage)
async def archive_task(task_id: TaskIdPath, caller: Operator, tasks: TasksDep) -> TaskRead:
    """Leave an ended task out of lists."""
    return view_task(await tasks.archive(caller, task_id))


def _to_request(body: TaskCreate) -> TaskRequest:
    budget = body.budget
    return TaskRequest(
        source=TaskSource.TEXT if body.issue is None else TaskSource.ISSUE,
        source_ref=None if body.issue is None else str(body.issue),
        title=body.title,
        instructions=body.instructions or "",
        base=body.base,
        agent=body.agent,
        command=body.command,
        model=body.model,
        attempts=_attempts_of(body),
        choice=ChoiceBy(body.choice),
        pull_request=body.pull_request,
        budget_usd=budget.usd,
        max_runs=budget.runs,
        max_fixes=budget.fixes,
        deadline=None if budget.deadline_s is None else timedelta(seconds=budget.deadline_s),
        metadata=body.metadata,
        priority=body.priority,
    )


def _attempts_of(body: TaskCreate) -> Sequence[AttemptRequest]:
    if isinstance(body.attempts, int):
        same = AttemptRequest(agent=body.agent, command=body.command, model=body.model)
        return [same] * body.attempts
    return [
        AttemptRequest(agent=one.agent, command=one.command, model=one.model)
        for one in body.attempts or ()
    ]


def _stages(stages: list[TaskStage] | None, states: list[TaskState] | None) -> frozenset[str]:
    """Select stages by themselves and by the states that they are reported as."""
    wanted = {state.value for state in states or ()}
    of_states = (each for each in Stage if state_of_task(each).value in wanted)
    return frozenset({*(stages or ()), *of_states})
