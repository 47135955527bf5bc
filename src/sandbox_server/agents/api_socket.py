from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from sandbox_server.agents.server_proxy import AgentServerProxy
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AgentsNotRunning
from sandbox_server.http.declared_errors import PASSED_ON, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on, find_component
from sandbox_server.http.faults import Malformed
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import path_origin
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.service import SandboxController

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/agent", tags=["agents"])

ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
AgentServerProxyDep = Annotated[AgentServerProxy, depends_on(AgentServerProxy)]

_SWITCHED: dict[int | str, dict[str, Any]] = {
    101: {"description": "WebSocket connection to the sandbox's agent server."}
}


class AgentServerResponse(Response):
    """Forwards the connection to the agent server."""

    def __init__(self, servers: AgentServerProxy, caller: Caller, sandbox_id: str) -> None:
        super().__init__()
        self._servers = servers
        self._caller = caller
        self._sandbox_id = sandbox_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        prefix = f"/v1/sandboxes/{self._sandbox_id}/agent"
        origin = path_origin(client, find_component(scope, PublicAddress), path=prefix)
        await self._servers.forward(client, self._caller, self._sandbox_id, origin=origin)


@router.get("/socket", responses=_SWITCHED)
@may_fail_with(*PASSED_ON, AgentsNotRunning)
async def attach_to_agent_server(
    sandbox_id: SandboxIdPath,
    request: Request,
    caller: Operator,
    controller: ControllerDep,
    servers: AgentServerProxyDep,
) -> Response:
    """Connect to the sandbox's agent server (port 3000) by WebSocket; resumes a paused sandbox.

    The API key is replaced by the sandbox's own token. Close codes are the same as for terminals, see docs/in-the-sandbox.md.
    """
    await controller.get(caller, sandbox_id)
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise Malformed("This endpoint requires a WebSocket upgrade.")
    return AgentServerResponse(servers, caller, sandbox_id)
