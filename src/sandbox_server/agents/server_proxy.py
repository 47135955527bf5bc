from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AgentsNotRunning, PortNotOpen
from sandbox_server.domain.service_ports import AGENT_PORT
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import Passage
from sandbox_server.proxy.public_origin import Outside
from sandbox_server.proxy.targets import Destination
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tools.service_proxy import ServiceProxy


class AgentServerProxy:
    """Leads WebSockets to the agent servers in sandboxes.

    To connect wakes a sandbox, and what is said keeps it awake, as in a terminal; pings do not.
    """

    def __init__(self, controller: SandboxController, service_proxy: ServiceProxy) -> None:
        self._controller = controller
        self._service_proxy = service_proxy

    async def pass_on(
        self, client: Client, caller: Caller, sandbox_id: str, *, outside: Outside
    ) -> None:
        """Connect a client to the agent server in its sandbox."""
        passage = Passage(
            client=client,
            caller=caller,
            destination=Destination(sandbox_id, AGENT_PORT),
            outside=outside,
            path=b"/",
            tells_end=True,
        )
        used = await self._controller.use(caller, sandbox_id)
        try:
            await self._service_proxy.pass_on(passage, used.row, repeat=lambda: client)
        except PortNotOpen:
            raise AgentsNotRunning from None
