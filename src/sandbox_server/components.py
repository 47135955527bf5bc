from dataclasses import dataclass, fields

from sandbox_server.access.api_keys import ApiKeys
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.configuration.service import Configurations
from sandbox_server.access.logins import Logins
from sandbox_server.access.tenants import Tenants
from sandbox_server.access.tickets import Tickets
from sandbox_server.admin.backends import BackendOverview
from sandbox_server.admin.metrics_exporter import MetricsExporter
from sandbox_server.admin.overview import Overview
from sandbox_server.agents.runs import AgentRuns
from sandbox_server.agents.server_proxy import AgentServerProxy
from sandbox_server.browser_services import BrowserServices
from sandbox_server.browserbase.live import LiveUrls
from sandbox_server.browserbase.projects import Projects
from sandbox_server.browsers.api_links import BrowserHosts
from sandbox_server.browsers.cdp.proxy import CdpProxy
from sandbox_server.browsers.contents import BrowserContexts, BrowserExtensions
from sandbox_server.browsers.downloads import SessionDownloads
from sandbox_server.browsers.drivers import SessionDrivers
from sandbox_server.browsers.live_view import LiveView
from sandbox_server.browsers.records.recorders import SessionRecorders
from sandbox_server.browsers.records.recordings import SessionRecordings
from sandbox_server.browsers.records.session_logs import SessionLogs
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.browsers.tokens import BrowserTokens
from sandbox_server.browsers.urls import BrowserLinks
from sandbox_server.browsers.webdriver import WebDriverProxy
from sandbox_server.commands.recordings import Recordings
from sandbox_server.commands.service import Commands
from sandbox_server.db.locks import Locks
from sandbox_server.db.session import Sessions
from sandbox_server.desktops.links import DesktopLinks
from sandbox_server.desktops.recordings import DesktopRecordings
from sandbox_server.desktops.service import Desktops
from sandbox_server.desktops.services import DesktopServices
from sandbox_server.desktops.viewers import DesktopViewers
from sandbox_server.domain.capabilities import NOTHING_DECLARED, DeclaredCapabilities
from sandbox_server.events.service import Timelines
from sandbox_server.files.archives import Archives
from sandbox_server.files.contents import FileContents
from sandbox_server.files.file_access import FileAccess
from sandbox_server.files.path_locks import PathLocks
from sandbox_server.files.tree import FileTree
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.forges.service import Forges
from sandbox_server.forges.views import ForgeViews
from sandbox_server.forges.webhook_bodies import WebhookBodies
from sandbox_server.git.endpoint.app import GitEndpoint
from sandbox_server.http.deps import Registry
from sandbox_server.http.sse import EventStreams
from sandbox_server.interpreters.connection import InterpreterConnections
from sandbox_server.interpreters.contexts import CodeContexts
from sandbox_server.interpreters.service import CodeExecutions
from sandbox_server.log.hub import StreamHub
from sandbox_server.ports.links import PortLinks
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.requests import SandboxRequests
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.views import SandboxViews
from sandbox_server.settings import Settings
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.task_services import TaskServices
from sandbox_server.tasks.history import TaskHistory
from sandbox_server.tasks.overlaps.service import TaskOverlaps
from sandbox_server.tasks.service import Tasks
from sandbox_server.templates.capabilities import TemplateCapabilities
from sandbox_server.templates.catalog import Catalog
from sandbox_server.templates.lookup import TemplateLookup
from sandbox_server.terminals.service import Terminals
from sandbox_server.tools.health_checks import ServiceHealth
from sandbox_server.tools.server_proxy import ToolServerProxy
from sandbox_server.tools.service_logs import ServiceLogRecorder
from sandbox_server.tools.service_proxy import ServiceProxy
from sandbox_server.vault import Vault
from sandbox_server.verbs.service import Verbs


@dataclass(frozen=True, kw_only=True)
class Core:
    """Objects that all components share."""

    settings: Settings
    sessions: Sessions
    vault: Vault
    backends: Backends
    controller: SandboxController
    commands: Commands
    recordings: Recordings
    streams: StreamHub
    sandbox_access: SandboxAccess
    service_config: ServiceConfigWriter
    snapshots: SnapshotService
    template_lookup: TemplateLookup
    declared_capabilities: DeclaredCapabilities = NOTHING_DECLARED
    public_address: PublicAddress
    forges: Forges
    repositories: Repositories
    task_services: TaskServices
    desktop_services: DesktopServices
    git_endpoint: GitEndpoint
    browsers: BrowserServices


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
    api_keys: ApiKeys
    tenants: Tenants
    tickets: Tickets
    logins: Logins
    backend_overview: BackendOverview
    overview: Overview
    metrics_exporter: MetricsExporter
    commands: Commands
    recordings: Recordings
    interpreter_connections: InterpreterConnections
    code_executions: CodeExecutions
    code_contexts: CodeContexts
    agent_runs: AgentRuns
    agent_servers: AgentServerProxy
    terminals: Terminals
    desktops: Desktops
    desktop_links: DesktopLinks
    desktop_viewers: DesktopViewers
    desktop_recordings: DesktopRecordings
    file_access: FileAccess
    contents: FileContents
    tree: FileTree
    archives: Archives
    port_proxy: PortProxy
    port_links: PortLinks
    browser_tokens: BrowserTokens
    browser_links: BrowserLinks
    browser_hosts: BrowserHosts
    cdp_proxy: CdpProxy
    webdriver_proxy: WebDriverProxy
    streams: StreamHub
    event_streams: EventStreams
    timelines: Timelines
    browser_sessions: BrowserSessions
    session_drivers: SessionDrivers
    session_downloads: SessionDownloads
    session_recorders: SessionRecorders
    session_logs: SessionLogs
    session_recordings: SessionRecordings
    browser_contexts: BrowserContexts
    browser_extensions: BrowserExtensions
    browser_projects: Projects
    live_urls: LiveUrls
    service_health: ServiceHealth
    service_logs: ServiceLogRecorder
    tool_servers: ToolServerProxy
    sandbox_views: SandboxViews
    snapshots: SnapshotService
    catalog: Catalog
    template_capabilities: TemplateCapabilities
    configurations: Configurations
    verbs: Verbs
    forges: Forges
    forge_views: ForgeViews
    repositories: Repositories
    sandbox_requests: SandboxRequests
    git_endpoint: GitEndpoint
    deliveries: Deliveries
    webhook_bodies: WebhookBodies
    tasks: Tasks
    task_history: TaskHistory
    task_overlaps: TaskOverlaps

    def by_type(self) -> Registry:
        """Map each component's type, by which routes depend on it, to the component."""
        registry: dict[type, object] = {}
        for field in fields(self):
            component = getattr(self, field.name)
            if type(component) in registry:
                raise TypeError(
                    f"{field.name}: a component of type {type(component).__name__} exists already"
                )
            registry[type(component)] = component
        return registry


def build_components(core: Core) -> Components:
    """Build the components in the order in which they need each other."""
    sessions, controller = core.sessions, core.controller
    authenticator = Authenticator(sessions)
    tickets = Tickets(sessions, authenticator)
    overview = Overview(sessions, core.backends)
    streams = core.streams
    commands = core.commands
    service_logs = ServiceLogRecorder(sessions, controller, commands, core.sandbox_access)
    service_health = ServiceHealth(sessions, controller.reach_into)
    port_proxy = PortProxy(controller, authenticator)
    browser_tokens = BrowserTokens(core.vault, authenticator)
    browser_links = BrowserLinks(core.public_address, browser_tokens)
    browsers = core.browsers
    cdp_proxy = CdpProxy(controller, port_proxy, browsers.policies)
    service_proxy = ServiceProxy(port_proxy, core.service_config)
    interpreter_connections = InterpreterConnections()
    desktops = core.desktop_services
    locks, file_access = Locks(sessions), FileAccess(controller)
    path_locks = PathLocks(locks)
    contents = FileContents(file_access, path_locks)
    template_capabilities = TemplateCapabilities(
        sessions, core.backends, core.declared_capabilities, core.template_lookup
    )
    return Components(
        settings=core.settings,
        sessions=sessions,
        backends=core.backends,
        vault=core.vault,
        locks=locks,
        public_address=core.public_address,
        controller=controller,
        authenticator=authenticator,
        api_keys=ApiKeys(sessions, authenticator),
        tenants=Tenants(sessions, core.backends),
        tickets=tickets,
        logins=Logins(sessions, authenticator),
        backend_overview=BackendOverview(sessions, core.backends),
        overview=overview,
        metrics_exporter=MetricsExporter(sessions, overview),
        commands=commands,
        recordings=core.recordings,
        interpreter_connections=interpreter_connections,
        code_executions=CodeExecutions(sessions, commands, interpreter_connections),
        code_contexts=CodeContexts(controller, interpreter_connections),
        agent_runs=AgentRuns(sessions, commands),
        agent_servers=AgentServerProxy(controller, service_proxy),
        terminals=Terminals(sessions, controller, commands, streams),
        desktops=desktops.desktops,
        desktop_links=DesktopLinks(
            sessions, tickets, controller, desktops.control, core.public_address
        ),
        desktop_viewers=DesktopViewers(
            sessions,
            controller,
            desktops.configuration,
            desktops.desktops,
            service_proxy,
            grace=desktops.grace,
        ),
        desktop_recordings=desktops.recordings,
        file_access=file_access,
        contents=contents,
        tree=FileTree(file_access, path_locks),
        archives=Archives(file_access),
        port_proxy=port_proxy,
        port_links=PortLinks(tickets, core.public_address),
        browser_tokens=browser_tokens,
        browser_links=browser_links,
        browser_hosts=BrowserHosts(
            cdp_proxy,
            browser_tokens,
            LiveView(controller, cdp_proxy, allowed_origins=core.settings.allowed_origins),
        ),
        cdp_proxy=cdp_proxy,
        webdriver_proxy=WebDriverProxy(controller, port_proxy, browsers.webdriver_clients),
        streams=streams,
        event_streams=EventStreams(streams, authenticator),
        timelines=Timelines(sessions, service_logs),
        browser_sessions=browsers.sessions,
        session_drivers=browsers.drivers,
        session_downloads=browsers.downloads,
        session_recorders=browsers.recorders,
        session_logs=browsers.logs,
        session_recordings=browsers.recordings,
        browser_contexts=browsers.contexts,
        browser_extensions=browsers.extensions,
        browser_projects=browsers.projects,
        live_urls=LiveUrls(browser_links, cdp_proxy),
        service_health=service_health,
        service_logs=service_logs,
        tool_servers=ToolServerProxy(controller, service_proxy),
        sandbox_views=SandboxViews(
            sessions, core.backends, core.vault, core.public_address, service_health, browser_links
        ),
        snapshots=core.snapshots,
        catalog=Catalog(sessions, core.backends, core.vault, core.template_lookup),
        template_capabilities=template_capabilities,
        configurations=Configurations(sessions, core.backends, template_capabilities, core.vault),
        verbs=Verbs(controller, commands, contents),
        forges=core.forges,
        tasks=core.task_services.tasks,
        task_history=core.task_services.history,
        task_overlaps=core.task_services.overlaps,
        forge_views=ForgeViews(core.public_address),
        repositories=core.repositories,
        sandbox_requests=SandboxRequests(core.repositories),
        git_endpoint=core.git_endpoint,
        deliveries=Deliveries(sessions, core.forges),
        webhook_bodies=WebhookBodies(),
    )
