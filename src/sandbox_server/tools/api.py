"""MCP over streamable HTTP, forwarded unchanged to the tool servers in sandboxes."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from starlette.types import Receive, Scope, Send

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import ToolsNotRunning
from sandbox_server.http.declared_errors import PASSED_ON, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on, find_component
from sandbox_server.http.faults import TOO_LARGE, Malformed
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.public_origin import path_origin
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.tools.server_proxy import ToolServerProxy

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["mcp"])

ToolServerProxyDep = Annotated[ToolServerProxy, depends_on(ToolServerProxy)]

_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Response of the tool server.",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    "default": {"description": "Response of the tool server."},
}


class ToolServerResponse(Response):
    """Forwards the request to the sandbox's tool server and streams its response."""

    def __init__(self, servers: ToolServerProxy, caller: Caller, sandbox_id: str) -> None:
        super().__init__()
        self._servers = servers
        self._caller = caller
        self._sandbox_id = sandbox_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        prefix = f"/v1/sandboxes/{self._sandbox_id}"
        path = scope["raw_path"].removeprefix(prefix.encode())
        if not path.startswith(b"/mcp"):
            raise Malformed("The path before `/mcp` must not contain escapes.")
        await self._servers.forward(
            client,
            self._caller,
            self._sandbox_id,
            origin=path_origin(client, find_component(scope, PublicAddress), path=prefix),
            path=b"/mcp/" if path == b"/mcp" else path,  # tool servers would redirect
        )


@router.post("/mcp/", responses=_RESPONSE)
@may_fail_with(*PASSED_ON, ToolsNotRunning, TOO_LARGE)
async def send_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """Send an MCP message to the sandbox's tool server (port 6060); resumes a paused sandbox.

    MCP clients need this URL and an API key in a header. The key is replaced by the sandbox's own token.
    """
    return ToolServerResponse(servers, caller, sandbox_id)


@router.get("/mcp/", responses=_RESPONSE)
@may_fail_with(*PASSED_ON, ToolsNotRunning)
async def listen_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """Listen to messages that the tool server sends on its own. Does not resume a paused sandbox; the stream stays silent meanwhile."""
    return ToolServerResponse(servers, caller, sandbox_id)


@router.delete("/mcp/", responses=_RESPONSE)
@may_fail_with(*PASSED_ON, ToolsNotRunning)
async def end_tool_session(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """End an MCP session."""
    return ToolServerResponse(servers, caller, sandbox_id)


@router.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
@router.api_route("/mcp/{path:path}", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def pass_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    return ToolServerResponse(servers, caller, sandbox_id)
