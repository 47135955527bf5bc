from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AgentsNotRunning, PortNotOpen
from sandbox_server.lifecycle.controller import SandboxController
from sandbox_server.passing.client import Client
from sandbox_server.passing.destinations import Destination
from sandbox_server.passing.introduction import Introduction
from sandbox_server.passing.outside import Outside
from sandbox_server.passing.passage import Passage
from sandbox_server.passing.service_health import AGENT_PORT


class AgentServers:
    """Leads WebSockets to the agent servers in sandboxes.

    To connect wakes a sandbox, and what is said keeps it awake, as in a terminal; pings do not.
    """

    def __init__(self, controller: SandboxController, introduction: Introduction) -> None:
        self._controller = controller
        self._introduction = introduction

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
            await self._introduction.pass_on(passage, used.row, repeat=lambda: client)
        except PortNotOpen:
            raise AgentsNotRunning from None
