from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AgentsNotRunning
from sandbox_server.http.declared_errors import PASSED_ON, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, ServicesDep
from sandbox_server.http.faults import Malformed
from sandbox_server.ports.path_form import outside_of
from sandbox_server.proxy.client import Client
from sandbox_server.services import Services

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/agent", tags=["agents"])

_SWITCHED: dict[int | str, dict[str, Any]] = {
    101: {"description": "The WebSocket of the sandbox's agent server."}
}


class AgentServerAnswer(Response):
    """The agent server's own connection, once it is there."""

    def __init__(self, services: Services, caller: Caller, sandbox_id: str) -> None:
        super().__init__()
        self._services = services
        self._caller = caller
        self._sandbox_id = sandbox_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        above = f"/v1/sandboxes/{self._sandbox_id}/agent"
        outside = outside_of(client, self._services, path=above)
        await self._services.agent_servers.pass_on(
            client, self._caller, self._sandbox_id, outside=outside
        )


@router.get("/socket", responses=_SWITCHED)
@may_fail_with(*PASSED_ON, AgentsNotRunning)
async def attach_to_agent_server(
    sandbox_id: SandboxIdPath, request: Request, caller: Operator, services: ServicesDep
) -> Response:
    """Talk with the sandbox's agent server, on its port 3000, by WebSocket; a paused sandbox wakes.

    The agent server gets a token of its own instead of your key. Close codes are those of terminals: see
    docs/in-the-sandbox.md.
    """
    await services.controller.get(caller, sandbox_id)
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise Malformed("This is a WebSocket, and has to be connected to as one.")
    return AgentServerAnswer(services, caller, sandbox_id)
