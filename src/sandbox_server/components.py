from dataclasses import dataclass, fields

from sandbox_server.access.api_keys import KeyRing
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.logins import Logins
from sandbox_server.access.tenants import Tenants
from sandbox_server.access.tickets import Tickets
from sandbox_server.admin.backends import Fleet
from sandbox_server.admin.exposition import Exposition
from sandbox_server.admin.overview import Overview
from sandbox_server.agents.runs import AgentRuns
from sandbox_server.agents.server_proxy import AgentServers
from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.service import Commands
from sandbox_server.db.locks import Locks
from sandbox_server.db.session import Sessions
from sandbox_server.events.service import Timelines
from sandbox_server.files.archives import Archives
from sandbox_server.files.contents import FileContents
from sandbox_server.files.file_access import WayIn
from sandbox_server.files.path_locks import Alone
from sandbox_server.files.tree import FileTree
from sandbox_server.http.deps import Registry
from sandbox_server.http.sse import EventStreams
from sandbox_server.log.hub import Streams
from sandbox_server.ports.links import PortLinks
from sandbox_server.ports.port_proxy import Passing
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.views import SandboxViews
from sandbox_server.settings import Settings
from sandbox_server.templates.catalog import Catalog
from sandbox_server.terminals.service import Terminals
from sandbox_server.tools.health_checks import ServiceHealth
from sandbox_server.tools.server_proxy import ToolServers
from sandbox_server.tools.service_logs import ServiceLogs
from sandbox_server.tools.service_proxy import Introduction
from sandbox_server.vault import Vault
from sandbox_server.verbs.service import Verbs


@dataclass(frozen=True, kw_only=True)
class Core:
    """What the components stand on."""

    settings: Settings
    sessions: Sessions
    vault: Vault
    backends: Backends
    controller: SandboxController
    commands: Commands
    recordings: Recordings
    streams: Streams
    sandbox_access: SandboxAccess
    service_config: ServiceConfigWriter
    public_address: PublicAddress


@dataclass(frozen=True, kw_only=True)
class Components:
    """Every object that routes and middleware use, each built once."""

    settings: Settings
    sessions: Sessions
    backends: Backends
    vault: Vault
    locks: Locks
    public_address: PublicAddress
    controller: SandboxController
    authenticator: Authenticator
    key_ring: KeyRing
    tenants: Tenants
    tickets: Tickets
    logins: Logins
    fleet: Fleet
    overview: Overview
    exposition: Exposition
    commands: Commands
    recordings: Recordings
    agent_runs: AgentRuns
    agent_servers: AgentServers
    terminals: Terminals
    way_in: WayIn
    contents: FileContents
    tree: FileTree
    archives: Archives
    passing: Passing
    port_links: PortLinks
    streams: Streams
    event_streams: EventStreams
    timelines: Timelines
    service_health: ServiceHealth
    service_logs: ServiceLogs
    tool_servers: ToolServers
    sandbox_views: SandboxViews
    catalog: Catalog
    verbs: Verbs

    def by_type(self) -> Registry:
        """List the components by the type under which routes ask for them."""
        components = [getattr(self, field.name) for field in fields(self)]
        return {type(component): component for component in components}


def build_components(core: Core) -> Components:
    """Build the components in the order in which they need each other."""
    sessions, controller = core.sessions, core.controller
    authenticator = Authenticator(sessions)
    tickets = Tickets(sessions, authenticator)
    overview = Overview(sessions, core.backends)
    streams = core.streams
    commands = core.commands
    service_logs = ServiceLogs(sessions, controller, commands, core.sandbox_access)
    service_health = ServiceHealth(sessions, controller.reach_into)
    passing = Passing(controller, authenticator)
    introduction = Introduction(passing, core.service_config)
    locks, way_in = Locks(sessions), WayIn(controller)
    path_locks = Alone(locks)
    contents = FileContents(way_in, path_locks)
    return Components(
        settings=core.settings,
        sessions=sessions,
        backends=core.backends,
        vault=core.vault,
        locks=locks,
        public_address=core.public_address,
        controller=controller,
        authenticator=authenticator,
        key_ring=KeyRing(sessions, authenticator),
        tenants=Tenants(sessions, core.backends),
        tickets=tickets,
        logins=Logins(sessions, authenticator),
        fleet=Fleet(sessions, core.backends),
        overview=overview,
        exposition=Exposition(sessions, overview),
        commands=commands,
        recordings=core.recordings,
        agent_runs=AgentRuns(sessions, commands),
        agent_servers=AgentServers(controller, introduction),
        terminals=Terminals(sessions, controller, commands, streams),
        way_in=way_in,
        contents=contents,
        tree=FileTree(way_in, path_locks),
        archives=Archives(way_in),
        passing=passing,
        port_links=PortLinks(tickets, core.public_address),
        streams=streams,
        event_streams=EventStreams(streams, authenticator),
        timelines=Timelines(sessions, service_logs),
        service_health=service_health,
        service_logs=service_logs,
        tool_servers=ToolServers(controller, introduction),
        sandbox_views=SandboxViews(
            sessions, core.backends, core.vault, core.public_address, service_health
        ),
        catalog=Catalog(sessions, core.backends, core.vault),
        verbs=Verbs(controller, commands, contents),
    )
