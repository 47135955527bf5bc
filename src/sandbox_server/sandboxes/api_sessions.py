from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Response

from sandbox_client.models import Name, SandboxRead
from sandbox_server.http.declared_errors import PLACED, RESUMED, may_fail_with
from sandbox_server.http.deps import Operator
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.waiting import Wait
from sandbox_server.sandboxes.api import ControllerDep, SandboxViewsDep, set_status
from sandbox_server.sandboxes.requests import SessionSandboxBody, to_sandbox_request

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes/by-session", tags=["sandboxes"])


@router.put(
    "/{session_id:path}", responses={201: {"model": SandboxRead}, 202: {"model": SandboxRead}}
)
@may_fail_with(*PLACED, *RESUMED)
async def use_session_sandbox(
    session_id: Annotated[Name, Path()],
    body: SessionSandboxBody,
    response: Response,
    caller: Operator,
    controller: ControllerDep,
    views: SandboxViewsDep,
    wait: Wait = 30,
) -> SandboxRead:
    """Give a session's sandbox: found (200), resumed, or created (201). However many ask at once, there is one."""
    found = await controller.find_or_create(
        caller, session_id, to_sandbox_request(body), wait=timedelta(seconds=wait)
    )
    response.headers["Location"] = f"/v1/sandboxes/{found.row.id}"
    response.status_code = 201 if found.created else 200
    set_status(response, found.row)
    return await views.view(found.row, caller)
