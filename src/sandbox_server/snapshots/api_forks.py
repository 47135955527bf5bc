from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Response

from sandbox_client.models import SandboxFork, SandboxRead
from sandbox_server.domain import errors
from sandbox_server.domain.requests import ForkRequest
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.requests import IdempotencyDep, request_fields
from sandbox_server.http.waiting import Wait
from sandbox_server.sandboxes.views import SandboxViews, set_status
from sandbox_server.snapshots.service import SnapshotService

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes", tags=["sandboxes"])


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
    body: Annotated[SandboxFork, Body(default_factory=SandboxFork)],
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    snapshots: Annotated[SnapshotService, depends_on(SnapshotService)],
    views: Annotated[SandboxViews, depends_on(SandboxViews)],
    wait: Wait = 30,
) -> SandboxRead:
    """Create a sandbox with a copy of another one's files. Processes are copied only if the provider copies memory."""
    row = await snapshots.fork(
        caller,
        sandbox_id,
        ForkRequest(**request_fields(body)),
        idempotency=idempotency.of(body),
        wait=timedelta(seconds=wait),
    )
    response.headers["Location"] = f"/v1/sandboxes/{row.id}"
    set_status(response, row)
    return await views.view(row, caller)
