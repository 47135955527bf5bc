from collections.abc import Callable
from dataclasses import replace

from starlette.types import Message

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import PortBroken, ToolsRefused
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.sandboxes.services.config import ServiceConfigWriter

_UNAUTHORIZED = 401
_REDIRECTS = range(300, 400)


class _TokenRefused(Exception):
    """The service rejected the token."""


class ServiceProxy:
    """Forwards requests to services in sandboxes, authenticated by the sandbox's own token.

    On 401 the token is written into the sandbox again, and the request is repeated once.
    """

    def __init__(self, port_proxy: PortProxy, service_config: ServiceConfigWriter) -> None:
        self._port_proxy = port_proxy
        self._service_config = service_config

    async def forward(
        self, proxy_request: ProxyRequest, row: Sandbox, *, repeat: Callable[[], Client]
    ) -> None:
        """Forward the service's response; `repeat` returns a client that replays the request."""
        token = await self._service_config.token(row)
        try:
            await self._attempt(proxy_request, repeat(), token)
        except _TokenRefused:
            await self._service_config.rewrite(row)
            try:
                await self._attempt(proxy_request, repeat(), token)
            except _TokenRefused:
                raise ToolsRefused(
                    f"The service on port {proxy_request.target.port} rejects the token that was written for it."
                ) from None

    async def _attempt(self, proxy_request: ProxyRequest, client: Client, token: str) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = _checked(message, proxy_request.target.port)
            await client.send(message)

        bearer = (b"authorization", f"Bearer {token}".encode())
        checked = Client(client.scope, client.receive, send)
        await self._port_proxy.forward(
            replace(proxy_request, client=checked, extra_headers=(bearer,))
        )


def _checked(start: Message, port: int) -> Message:
    """Reject responses that concern the connection between this server and the service."""
    if start["status"] == _UNAUTHORIZED:
        raise _TokenRefused
    if start["status"] in _REDIRECTS:  # a client that follows could send its API key along
        raise PortBroken(port, "answered with a redirect, which is not forwarded")
    kept = [each for each in start["headers"] if each[0].lower() != b"www-authenticate"]
    return {**start, "headers": kept}
