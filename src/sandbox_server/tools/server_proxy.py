from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    PortNotOpen,
    SandboxError,
    ToolsNotRunning,
)
from sandbox_server.domain.service_ports import TOOLS_PORT
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tools.paused_listeners import PausedListeners, StreamRejected, end
from sandbox_server.tools.service_proxy import ServiceProxy

_LISTEN = "subscriptions/listen"


class ToolServerProxy:
    """Forwards MCP requests to the tool servers in sandboxes, which authenticate this server by per-sandbox tokens.

    A call counts as activity until it is answered. A client that only listens does not resume the sandbox; its stream
    continues once the sandbox runs again.
    """

    def __init__(self, controller: SandboxController, service_proxy: ServiceProxy) -> None:
        self._controller = controller
        self._service_proxy = service_proxy
        self._paused_listeners = PausedListeners(controller)

    def end_waits(self) -> None:
        """End the streams of clients that listen to paused sandboxes; they reconnect."""
        self._paused_listeners.end_waits()

    async def forward(
        self, client: Client, caller: Caller, sandbox_id: str, *, origin: PublicOrigin, path: bytes
    ) -> None:
        """Forward a request to the sandbox's tool server and its response to the client."""
        proxy_request = ProxyRequest(
            client=client,
            caller=caller,
            target=PortTarget(sandbox_id, TOOLS_PORT),
            origin=origin,
            path=path,
        )
        if _listens(client.scope):
            await self._listen(replace(proxy_request, counts_as_activity=False))
            return
        used = await self._controller.use(caller, sandbox_id)
        with self._controller.activity.hold(used.row):
            body = await _BufferedBody.read(client)
            if body is not None:
                await self._forward(proxy_request, used, body)

    async def _listen(self, proxy_request: ProxyRequest) -> None:
        caller, sandbox_id = proxy_request.caller, proxy_request.target.sandbox_id
        await self._controller.get(caller, sandbox_id)
        body = await _BufferedBody.read(proxy_request.client)
        if body is None:
            return
        waiting = await self._paused_listeners.until_running(
            proxy_request.client, caller, sandbox_id
        )
        if waiting is None:
            return
        try:
            used = await self._controller.look_into(caller, sandbox_id)
            await self._forward(replace(proxy_request, client=waiting), used, body)
        except (SandboxError, StreamRejected):
            if waiting is proxy_request.client:
                raise
            await end(proxy_request.client)

    async def _forward(
        self, proxy_request: ProxyRequest, used: UsableSandbox, body: "_BufferedBody"
    ) -> None:
        scope = proxy_request.client.scope

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                body.discard()
            await proxy_request.client.send(message)

        def repeat() -> Client:
            return Client(scope, body.replay(), send)

        try:
            await self._service_proxy.forward(proxy_request, used.row, repeat=repeat)
        except PortNotOpen:
            raise ToolsNotRunning from None


class _BufferedBody:
    """A request's body, buffered until the tool server has accepted the token, so that it can be sent again."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body = body
        self._receive = receive

    @classmethod
    async def read(cls, client: Client) -> "_BufferedBody | None":
        """Read the whole body; None if the client disconnected meanwhile."""
        body = bytearray()
        while True:
            message = await client.receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return cls(bytes(body), client.receive)

    def replay(self) -> Receive:
        """Return a `receive` that yields the body, then the client's further messages."""
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                return await self._receive()
            is_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}

        return receive

    def discard(self) -> None:
        self._body = b""


def _listens(scope: Scope) -> bool:
    """Return whether the client only listens for server messages, by the old or the new MCP transport."""
    headers = Headers(scope=scope)
    is_stream = scope["method"] == "GET" and "text/event-stream" in headers.get("accept", "")
    return is_stream or headers.get("mcp-method") == _LISTEN
