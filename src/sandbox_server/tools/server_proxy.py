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
    """Passes MCP on to the tool servers in sandboxes, which know this server by tokens of their own.

    A call keeps its sandbox awake until it is answered, however long that takes. Who only listens wakes nothing, and
    hears on once the sandbox runs again.
    """

    def __init__(self, controller: SandboxController, service_proxy: ServiceProxy) -> None:
        self._controller = controller
        self._service_proxy = service_proxy
        self._listening = PausedListeners(controller)

    def end_waits(self) -> None:
        """End the streams of those who wait for paused sandboxes; they come again."""
        self._listening.end_waits()

    async def pass_on(
        self, client: Client, caller: Caller, sandbox_id: str, *, origin: PublicOrigin, path: bytes
    ) -> None:
        """Answer a request with what the sandbox's tool server answers."""
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
            question = await _Question.read(client)
            if question is not None:
                await self._ask(proxy_request, used, question)

    async def _listen(self, proxy_request: ProxyRequest) -> None:
        caller, sandbox_id = proxy_request.caller, proxy_request.target.sandbox_id
        await self._controller.get(caller, sandbox_id)
        question = await _Question.read(proxy_request.client)
        if question is None:
            return
        waiting = await self._listening.until_running(proxy_request.client, caller, sandbox_id)
        if waiting is None:
            return
        try:
            used = await self._controller.look_into(caller, sandbox_id)
            await self._ask(replace(proxy_request, client=waiting), used, question)
        except (SandboxError, StreamRejected):
            if waiting is proxy_request.client:
                raise
            await end(proxy_request.client)

    async def _ask(
        self, proxy_request: ProxyRequest, used: UsableSandbox, question: "_Question"
    ) -> None:
        scope = proxy_request.client.scope

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                question.forget()
            await proxy_request.client.send(message)

        def repeat() -> Client:
            return Client(scope, question.repeated(), send)

        try:
            await self._service_proxy.pass_on(proxy_request, used.row, repeat=repeat)
        except PortNotOpen:
            raise ToolsNotRunning from None


class _Question:
    """A request's body, kept until the tool server lets it in. Tool servers read no more than a message at once either."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body = body
        self._receive = receive

    @classmethod
    async def read(cls, client: Client) -> "_Question | None":
        """Read all of it; None where the client left in the middle."""
        body = bytearray()
        while True:
            message = await client.receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return cls(bytes(body), client.receive)

    def repeated(self) -> Receive:
        """Give the body, and then what else the client does."""
        given = False

        async def receive() -> Message:
            nonlocal given
            if given:
                return await self._receive()
            given = True
            return {"type": "http.request", "body": self._body, "more_body": False}

        return receive

    def forget(self) -> None:
        self._body = b""


def _listens(scope: Scope) -> bool:
    """Tell whether the client asks for nothing but what the tool server says unasked: in both eras of MCP."""
    headers = Headers(scope=scope)
    is_stream = scope["method"] == "GET" and "text/event-stream" in headers.get("accept", "")
    return is_stream or headers.get("mcp-method") == _LISTEN
