"""MCP over streamable HTTP: what clients send and hear is between them and the tool servers in their sandboxes."""

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

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What the tool server answers.",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    "default": {"description": "What the tool server answers."},
}


class ToolServerAnswer(Response):
    """What the sandbox's tool server answers, as it comes."""

    def __init__(self, servers: ToolServerProxy, caller: Caller, sandbox_id: str) -> None:
        super().__init__()
        self._servers = servers
        self._caller = caller
        self._sandbox_id = sandbox_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        above = f"/v1/sandboxes/{self._sandbox_id}"
        path = scope["raw_path"].removeprefix(above.encode())
        if not path.startswith(b"/mcp"):
            raise Malformed("What comes before `/mcp` has escapes in it.")
        await self._servers.pass_on(
            client,
            self._caller,
            self._sandbox_id,
            origin=path_origin(client, find_component(scope, PublicAddress), path=above),
            path=b"/mcp/" if path == b"/mcp" else path,  # tool servers would redirect
        )


@router.post("/mcp/", responses=_ANSWER)
@may_fail_with(*PASSED_ON, ToolsNotRunning, TOO_LARGE)
async def send_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """Send a message of MCP to the sandbox's tool server, on its port 6060; a paused sandbox wakes.

    A client of MCP needs this address and a key in a header. The tool server gets a token of its own instead of the key.
    """
    return ToolServerAnswer(servers, caller, sandbox_id)


@router.get("/mcp/", responses=_ANSWER)
@may_fail_with(*PASSED_ON, ToolsNotRunning)
async def listen_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """Hear what the tool server says unasked. Nothing is said while the sandbox is paused, and listening wakes nothing."""
    return ToolServerAnswer(servers, caller, sandbox_id)


@router.delete("/mcp/", responses=_ANSWER)
@may_fail_with(*PASSED_ON, ToolsNotRunning)
async def end_tool_session(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    """End a session of MCP."""
    return ToolServerAnswer(servers, caller, sandbox_id)


@router.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
@router.api_route("/mcp/{path:path}", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def pass_to_tool_server(
    sandbox_id: SandboxIdPath, caller: Operator, servers: ToolServerProxyDep
) -> Response:
    return ToolServerAnswer(servers, caller, sandbox_id)
