from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Response

from sandbox_client.models import (
    MetricRead,
    Name,
    Page,
    SandboxRead,
    SandboxUpdate,
)
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import ASKED_OF_PROVIDER, PLACED, RESUMED, may_fail_with
from sandbox_server.http.deps import (
    Operator,
    Reader,
    SandboxIdPath,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.http.waiting import Wait
from sandbox_server.providers.protocol.errors import LacksCapability, SandboxGone
from sandbox_server.sandboxes.requests import (
    FilterDep,
    KeepAliveBody,
    NewSandboxBody,
    SandboxRequests,
    SessionSandboxBody,
    to_sandbox_patch,
)
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.views import SandboxViews, set_status, view_usage

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes", tags=["sandboxes"])

ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
SandboxRequestsDep = Annotated[SandboxRequests, depends_on(SandboxRequests)]
SandboxViewsDep = Annotated[SandboxViews, depends_on(SandboxViews)]


@router.post("", status_code=201, responses={202: {"model": SandboxRead}})
@may_fail_with(*PLACED, errors.SandboxNotFound, errors.RepositoryNotFound, errors.InvalidRequest)
async def create_sandbox(
    body: NewSandboxBody,
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    requests: SandboxRequestsDep,
    controller: ControllerDep,
    views: SandboxViewsDep,
    wait: Wait = 30,
) -> SandboxRead:
    """Create a sandbox. 201: it runs. 202: it is queued or starting; poll `Location` for its state."""
    row = await controller.create(
        caller,
        await requests.read(caller, body),
        idempotency=idempotency.of(body),
        wait=timedelta(seconds=wait),
    )
    response.headers["Location"] = f"/v1/sandboxes/{row.id}"
    set_status(response, row)
    return await views.view(row, caller)


@router.get("")
async def list_sandboxes(
    caller: Reader,
    controller: ControllerDep,
    views: SandboxViewsDep,
    wanted: FilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SandboxRead]:
    """List sandboxes, newest first. `metadata.NAME=TEXT` filters by metadata and may be repeated."""
    rows = await controller.list_page(caller, wanted, limit=limit + 1, before=read_id(cursor))
    items = await views.view_all(rows[:limit], caller)
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{sandbox_id}")
async def get_sandbox(
    sandbox_id: SandboxIdPath, caller: Reader, controller: ControllerDep, views: SandboxViewsDep
) -> SandboxRead:
    """Get the state, target and deadlines of a sandbox."""
    row = await controller.get(caller, sandbox_id)
    return await views.view_fresh(row, caller)


@router.put(
    "/by-session/{session_id:path}",
    responses={201: {"model": SandboxRead}, 202: {"model": SandboxRead}},
)
@may_fail_with(*PLACED, *RESUMED, errors.RepositoryNotFound, errors.InvalidRequest)
async def use_session_sandbox(
    session_id: Annotated[Name, Path()],
    body: SessionSandboxBody,
    response: Response,
    caller: Operator,
    requests: SandboxRequestsDep,
    controller: ControllerDep,
    views: SandboxViewsDep,
    wait: Wait = 30,
) -> SandboxRead:
    """Get the one sandbox of a session: found (200), resumed, or created (201). Concurrent requests get the same sandbox."""
    wanted = await requests.read(caller, body)
    found = await controller.find_or_create(
        caller, session_id, wanted, wait=timedelta(seconds=wait)
    )
    response.headers["Location"] = f"/v1/sandboxes/{found.row.id}"
    response.status_code = 201 if found.created else 200
    set_status(response, found.row)
    return await views.view(found.row, caller)


@router.patch("/{sandbox_id}")
@may_fail_with(errors.InvalidTransition, errors.InvalidRequest)
async def update_sandbox(
    sandbox_id: SandboxIdPath,
    body: SandboxUpdate,
    caller: Operator,
    controller: ControllerDep,
    views: SandboxViewsDep,
) -> SandboxRead:
    """Change metadata, timeouts or other settings. A new timeout counts from now."""
    row = await controller.update(caller, sandbox_id, to_sandbox_patch(body))
    return await views.view(row, caller)


@router.delete("/{sandbox_id}", status_code=204, responses={202: {"model": None}})
async def delete_sandbox(
    sandbox_id: SandboxIdPath, response: Response, caller: Operator, controller: ControllerDep
) -> None:
    """Delete a sandbox with its files; idempotent. 202: the deletion has begun."""
    row = await controller.delete(caller, sandbox_id)
    set_status(response, row)


@router.post("/{sandbox_id}/pause", responses={202: {"model": SandboxRead}})
@may_fail_with(errors.InvalidTransition, errors.SandboxFailed, LacksCapability)
async def pause_sandbox(
    sandbox_id: SandboxIdPath,
    response: Response,
    caller: Operator,
    controller: ControllerDep,
    views: SandboxViewsDep,
) -> SandboxRead:
    """Pause a sandbox. Its memory, files and remaining time are kept until it is resumed."""
    row = await controller.pause(caller, sandbox_id)
    set_status(response, row)
    return await views.view(row, caller)


@router.post("/{sandbox_id}/resume", responses={202: {"model": SandboxRead}})
@may_fail_with(*RESUMED)
async def resume_sandbox(
    sandbox_id: SandboxIdPath,
    response: Response,
    caller: Operator,
    controller: ControllerDep,
    views: SandboxViewsDep,
    wait: Wait = 30,
) -> SandboxRead:
    """Resume a paused sandbox. 202: it is queued for a free slot or resuming."""
    row = await controller.resume(caller, sandbox_id, wait=timedelta(seconds=wait))
    set_status(response, row)
    return await views.view(row, caller)


@router.post("/{sandbox_id}/keepalive")
@may_fail_with(errors.InvalidTransition)
async def keep_sandbox_awake(
    sandbox_id: SandboxIdPath,
    body: KeepAliveBody,
    caller: Operator,
    controller: ControllerDep,
    views: SandboxViewsDep,
) -> SandboxRead:
    """Postpone the idle pause of a sandbox without activity."""
    row = await controller.keep_awake(
        caller,
        sandbox_id,
        awake_for=timedelta(seconds=body.awake_s),
        timeout=None if body.timeout_s is None else timedelta(seconds=body.timeout_s),
    )
    return await views.view(row, caller)


@router.get("/{sandbox_id}/metrics")
@may_fail_with(*ASKED_OF_PROVIDER, SandboxGone)
async def list_metrics(
    sandbox_id: SandboxIdPath, caller: Reader, controller: ControllerDep
) -> Page[MetricRead]:
    """List the resource usage of a sandbox, oldest first, as far back as its provider has data."""
    used = await controller.metrics(caller, sandbox_id)
    return Page(items=[view_usage(usage) for usage in used], next_cursor=None)
