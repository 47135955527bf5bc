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
    """The service wants another token."""


class ServiceProxy:
    """Passes on to services in sandboxes that know this server by a token of the sandbox's own.

    A 401 is about that token and nobody else's: it is written again, and the same asked once more.
    """

    def __init__(self, port_proxy: PortProxy, service_config: ServiceConfigWriter) -> None:
        self._port_proxy = port_proxy
        self._service_config = service_config

    async def pass_on(
        self, proxy_request: ProxyRequest, row: Sandbox, *, repeat: Callable[[], Client]
    ) -> None:
        """Answer with what the service answers; `repeat` gives the client as if it had said nothing yet."""
        token = await self._service_config.token(row)
        try:
            await self._attempt(proxy_request, repeat(), token)
        except _TokenRefused:
            await self._service_config.rewrite(row)
            try:
                await self._attempt(proxy_request, repeat(), token)
            except _TokenRefused:
                raise ToolsRefused(
                    f"What answers on port {proxy_request.target.port} does not take the token in its file."
                ) from None

    async def _attempt(self, proxy_request: ProxyRequest, client: Client, token: str) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = _checked(message, proxy_request.target.port)
            await client.send(message)

        bearer = (b"authorization", f"Bearer {token}".encode())
        asking = Client(client.scope, client.receive, send)
        await self._port_proxy.forward(
            replace(proxy_request, client=asking, extra_headers=(bearer,))
        )


def _checked(start: Message, port: int) -> Message:
    """Let an answer through that is the service's; about the way to it it has nothing to say."""
    if start["status"] == _UNAUTHORIZED:
        raise _TokenRefused
    if start["status"] in _REDIRECTS:  # whoever follows may send its key along
        raise PortBroken(port, "sends its callers elsewhere")
    kept = [each for each in start["headers"] if each[0].lower() != b"www-authenticate"]
    return {**start, "headers": kept}
