from datetime import timedelta

from fastapi import APIRouter, Request, Response

from sandbox_client.models import (
    MetricRead,
    Page,
    SandboxRead,
    SandboxUpdate,
)
from sandbox_server.db.models import Sandbox
from sandbox_server.domain import errors
from sandbox_server.domain.state import serves
from sandbox_server.http.declared_errors import ASKED_OF_PROVIDER, PLACED, RESUMED, may_fail_with
from sandbox_server.http.deps import (
    ControllerDep,
    Operator,
    Reader,
    SandboxIdPath,
    ServicesDep,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.sandboxes.requests import (
    FilterDep,
    ForkBody,
    IdempotencyKey,
    KeepAliveBody,
    NewSandboxBody,
    Wait,
    to_fork_request,
    to_idempotency,
    to_sandbox_patch,
    to_sandbox_request,
)
from sandbox_server.sandboxes.views import view_sandbox, view_sandboxes, view_usage

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes", tags=["sandboxes"])

ASK_AGAIN_S = 2


@router.post("", status_code=201, responses={202: {"model": SandboxRead}})
@may_fail_with(*PLACED, errors.SandboxNotFound)
async def create_sandbox(
    body: NewSandboxBody,
    request: Request,
    response: Response,
    caller: Operator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = 30,
) -> SandboxRead:
    """Create a sandbox. It runs (201), or waits for a place or starts (202): ask `Location` what became of it."""
    row = await services.controller.create(
        caller,
        to_sandbox_request(body),
        idempotency=to_idempotency(request, idempotency_key, body),
        wait=timedelta(seconds=wait),
    )
    response.headers["Location"] = f"/v1/sandboxes/{row.id}"
    set_status(response, row)
    return await view_sandbox(services, row, caller)


@router.get("")
async def list_sandboxes(
    caller: Reader,
    services: ServicesDep,
    wanted: FilterDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SandboxRead]:
    """List sandboxes, newest first. `metadata.NAME=TEXT` finds those with that text, and may be repeated."""
    rows = await services.controller.list_page(
        caller, wanted, limit=limit + 1, before=read_id(cursor)
    )
    items = await view_sandboxes(services, rows[:limit], caller)
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{sandbox_id}")
async def get_sandbox(
    sandbox_id: SandboxIdPath, caller: Reader, services: ServicesDep
) -> SandboxRead:
    """Tell what a sandbox is, what is wanted of it, and its deadlines."""
    row = await services.controller.get(caller, sandbox_id)
    await services.service_health.ask(row)
    return await view_sandbox(services, row, caller)


@router.patch("/{sandbox_id}")
@may_fail_with(errors.InvalidTransition, errors.InvalidRequest)
async def update_sandbox(
    sandbox_id: SandboxIdPath, body: SandboxUpdate, caller: Operator, services: ServicesDep
) -> SandboxRead:
    """Change metadata, timeouts or what they do; a timeout counts from now on."""
    row = await services.controller.update(caller, sandbox_id, to_sandbox_patch(body))
    return await view_sandbox(services, row, caller)


@router.delete("/{sandbox_id}", status_code=204, responses={202: {"model": None}})
async def delete_sandbox(
    sandbox_id: SandboxIdPath, response: Response, caller: Operator, controller: ControllerDep
) -> None:
    """End a sandbox and all that is in it; one that has ended already stays so. 202: it is about to end."""
    row = await controller.delete(caller, sandbox_id)
    set_status(response, row)


@router.post("/{sandbox_id}/pause", responses={202: {"model": SandboxRead}})
@may_fail_with(errors.InvalidTransition, errors.SandboxFailed)
async def pause_sandbox(
    sandbox_id: SandboxIdPath, response: Response, caller: Operator, services: ServicesDep
) -> SandboxRead:
    """Freeze a sandbox; its memory, its files and the rest of its time are kept until it is resumed."""
    row = await services.controller.pause(caller, sandbox_id)
    set_status(response, row)
    return await view_sandbox(services, row, caller)


@router.post("/{sandbox_id}/resume", responses={202: {"model": SandboxRead}})
@may_fail_with(*RESUMED)
async def resume_sandbox(
    sandbox_id: SandboxIdPath,
    response: Response,
    caller: Operator,
    services: ServicesDep,
    wait: Wait = 30,
) -> SandboxRead:
    """Let a paused sandbox run on. Without room it waits for a place (202)."""
    row = await services.controller.resume(caller, sandbox_id, wait=timedelta(seconds=wait))
    set_status(response, row)
    return await view_sandbox(services, row, caller)


@router.post("/{sandbox_id}/keepalive")
@may_fail_with(errors.InvalidTransition)
async def keep_sandbox_awake(
    sandbox_id: SandboxIdPath, body: KeepAliveBody, caller: Operator, services: ServicesDep
) -> SandboxRead:
    """Keep a sandbox from its idle pause while you think, though nothing happens in it."""
    row = await services.controller.keep_awake(
        caller,
        sandbox_id,
        awake_for=timedelta(seconds=body.awake_s),
        timeout=None if body.timeout_s is None else timedelta(seconds=body.timeout_s),
    )
    return await view_sandbox(services, row, caller)


@router.post("/{sandbox_id}/fork", status_code=201, responses={202: {"model": SandboxRead}})
@may_fail_with(
    errors.InvalidTransition,
    errors.NotReady,
    errors.QueueFull,
    errors.StartFailed,
    errors.StartRefused,
)
async def fork_sandbox(
    sandbox_id: SandboxIdPath,
    body: ForkBody,
    request: Request,
    response: Response,
    caller: Operator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = 30,
) -> SandboxRead:
    """Start a copy of a sandbox with its files as they are now. Where the provider keeps no memory, without processes."""
    row = await services.controller.fork(
        caller,
        sandbox_id,
        to_fork_request(body),
        idempotency=to_idempotency(request, idempotency_key, body),
        wait=timedelta(seconds=wait),
    )
    response.headers["Location"] = f"/v1/sandboxes/{row.id}"
    set_status(response, row)
    return await view_sandbox(services, row, caller)


@router.get("/{sandbox_id}/metrics")
@may_fail_with(*ASKED_OF_PROVIDER, SandboxGone)
async def list_metrics(
    sandbox_id: SandboxIdPath, caller: Reader, controller: ControllerDep
) -> Page[MetricRead]:
    """Tell what a sandbox used over time, as far back as its provider knows, oldest first."""
    used = await controller.metrics(caller, sandbox_id)
    return Page(items=[view_usage(one) for one in used], next_cursor=None)


def set_status(response: Response, row: Sandbox) -> None:
    """Answer 202 where what is wanted of a sandbox is not so yet."""
    if not serves(row.state, row.target):
        response.status_code = 202
        response.headers["Retry-After"] = str(ASK_AGAIN_S)
