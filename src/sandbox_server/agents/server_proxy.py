from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AgentsNotRunning, PortNotOpen
from sandbox_server.domain.service_ports import AGENT_PORT
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tools.service_proxy import ServiceProxy


class AgentServerProxy:
    """Forwards WebSockets to the agent servers in sandboxes.

    Connecting resumes a paused sandbox. Messages count as activity, as in a terminal; pings do not.
    """

    def __init__(self, controller: SandboxController, service_proxy: ServiceProxy) -> None:
        self._controller = controller
        self._service_proxy = service_proxy

    async def forward(
        self, client: Client, caller: Caller, sandbox_id: str, *, origin: PublicOrigin
    ) -> None:
        """Connect a client to the agent server in its sandbox."""
        proxy_request = ProxyRequest(
            client=client,
            caller=caller,
            target=PortTarget(sandbox_id, AGENT_PORT),
            origin=origin,
            path=b"/",
            sends_close_frame=True,
        )
        used = await self._controller.use(caller, sandbox_id)
        try:
            await self._service_proxy.forward(proxy_request, used.row, repeat=lambda: client)
        except PortNotOpen:
            raise AgentsNotRunning from None
