from dataclasses import dataclass
from functools import cached_property

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.admin.exposition import Exposition
from sandbox_server.agents.server_proxy import AgentServers
from sandbox_server.commands.service import Commands
from sandbox_server.db.locks import Locks
from sandbox_server.db.session import Sessions
from sandbox_server.log.hub import Streams
from sandbox_server.ports.port_proxy import Passing
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.settings import Settings
from sandbox_server.tools.health_checks import ServiceHealth
from sandbox_server.tools.server_proxy import ToolServers
from sandbox_server.tools.service_logs import ServiceLogs
from sandbox_server.tools.service_proxy import Introduction
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Services:
    """All that the API calls."""

    settings: Settings
    sessions: Sessions
    locks: Locks
    authenticator: Authenticator
    controller: SandboxController
    backends: Backends
    vault: Vault
    exposition: Exposition
    commands: Commands
    streams: Streams
    service_logs: ServiceLogs

    @cached_property
    def passing(self) -> Passing:
        return Passing(self.controller, self.authenticator)

    @cached_property
    def service_health(self) -> ServiceHealth:
        return ServiceHealth(self.sessions, self.controller.reach_into)

    @cached_property
    def service_config(self) -> ServiceConfigWriter:
        return ServiceConfigWriter(self.sessions, self.backends, self.vault, self.public_address)

    @cached_property
    def introduction(self) -> Introduction:
        return Introduction(self.passing, self.service_config)

    @cached_property
    def agent_servers(self) -> AgentServers:
        return AgentServers(self.controller, self.introduction)

    @cached_property
    def tool_servers(self) -> ToolServers:
        return ToolServers(self.controller, self.introduction)

    @cached_property
    def public_address(self) -> PublicAddress:
        return PublicAddress(self.settings.url_from_outside)
