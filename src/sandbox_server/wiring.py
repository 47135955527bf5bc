"""Puts a server together, and keeps what works in the background at work."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from sandbox_client.models import Configuration
from sandbox_server.access.configuration.service import apply_configurations
from sandbox_server.access.encryption import open_vault, read_keys
from sandbox_server.admin.backends import register_backends
from sandbox_server.admin.retention import RetentionJob, RetentionPeriods
from sandbox_server.agents.follow_up import PauseAfterRun
from sandbox_server.browser_services import build_browser_services
from sandbox_server.commands.recordings import open_recordings
from sandbox_server.commands.service import Commands
from sandbox_server.components import Components, Core, build_components
from sandbox_server.db.database import open_database
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import Sessions, create_sessions
from sandbox_server.desktops.recording_copies import RecordingLimits
from sandbox_server.desktops.services import DesktopServices, build_desktop_services
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.templates import AGENT
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.service import Forges
from sandbox_server.git_services import (
    build_git_services,
    build_large_files,
    build_preparation,
)
from sandbox_server.jobs.kinds import (
    ADMISSION,
    AGENT_RUN,
    AGENT_TEMPLATE,
    BROWSER_SESSION,
    DRIFT_CHECK,
    HOUSEKEEPING,
    SANDBOX,
    SERVICES,
    SNAPSHOT,
    TEMPLATE_BUILD,
    TEMPLATES,
)
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.jobs.worker import Handler
from sandbox_server.lifecycle import (
    build_drift_checker,
    build_reconciliation,
    build_use_cases,
)
from sandbox_server.log.hub import StreamHub
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.metrics.instruments import watch_event_loop
from sandbox_server.providers.registry import Backends, open_backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.placement import SERVER_DEFAULTS, Placement
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.shutdown_pauser import ShutdownPauser
from sandbox_server.sandboxes.step_executor import WorkKeepers
from sandbox_server.settings import Settings
from sandbox_server.structured_logging import log_context
from sandbox_server.task_services import (
    TaskParts,
    build_saves,
    build_task_services,
)
from sandbox_server.tasks.automatic_saves import TaskWorkKeeper
from sandbox_server.templates.agent_template import AgentTemplate
from sandbox_server.templates.builder import TemplateBuilder
from sandbox_server.templates.bundled import NO_BUNDLED_TEMPLATES, BundledTemplates
from sandbox_server.templates.discovery import TemplateDiscovery
from sandbox_server.templates.shared_repository import SharedTemplateRepository
from sandbox_server.vault import Vault

_GRACE = timedelta(seconds=10)
_WITH_AGENT = replace(SERVER_DEFAULTS, template=AGENT, meanwhile=SERVER_DEFAULTS.template)


@dataclass(frozen=True)
class Server:
    """A running server: the components of its API, and its background services."""

    components: Components
    scheduler: SandboxQueueScheduler
    retention_job: RetentionJob
    shutdown_pauser: ShutdownPauser
    desktops: DesktopServices


@asynccontextmanager
async def open_server(
    settings: Settings,
    *,
    bundled: BundledTemplates = NO_BUNDLED_TEMPLATES,
    configurations: Mapping[str, Configuration] = MappingProxyType({}),
) -> AsyncIterator[Server]:
    """Build a server on its database and its providers, and run it until the block ends.

    A failed background task ends the block: a restart is better than a server that only looks alive.
    """
    async with AsyncExitStack() as stack:
        url = settings.database_url
        database = await stack.enter_async_context(
            open_database(
                None if url is None else url.get_secret_value(),
                state_dir=settings.state_dir,
                pool_size=settings.database_pool,
            )
        )
        sessions = create_sessions(database)
        configured = settings.encryption_keys
        keys = [] if configured is None else read_keys(configured.get_secret_value())
        vault = await open_vault(sessions, keys=keys, state_dir=settings.state_dir)
        backends = await _open_backends(settings, sessions)
        stack.push_async_callback(backends.close)
        notifications = Notifications(database)
        agent = _agent_template(settings, sessions, backends, bundled)
        server = _assemble(settings, sessions, vault, backends, notifications, bundled, agent)
        stack.push_async_callback(server.components.locks.close)
        stack.push_async_callback(server.components.forges.close)
        await apply_configurations(sessions, configurations, vault=vault)
        await server.retention_job.ensure()
        async with sessions.begin() as session:
            await SharedTemplateRepository(session).declare(
                _declared_capabilities(backends, bundled)
            )
        if agent is not None:
            await agent.ensure()
        await stack.enter_async_context(_background_tasks(server, notifications))
        yield server


async def _open_backends(settings: Settings, sessions: Sessions) -> Backends:
    async with sessions.begin() as session:
        installation = await InstallationRepository(session).find_or_make()
    backends = open_backends(settings.backends, installation_id=installation.id)
    await register_backends(sessions, backends)
    return backends


def _assemble(
    settings: Settings,
    sessions: Sessions,
    vault: Vault,
    backends: Backends,
    notifications: Notifications,
    bundled: BundledTemplates,
    agent: AgentTemplate | None,
) -> Server:
    declared = _declared_capabilities(backends, bundled)
    changes = Changes(notifications)
    public_address = PublicAddress(settings.url_from_outside)
    forges = Forges(sessions, vault, AllowedHosts(settings.forge_hosts))
    saves = build_saves(sessions, vault, build_large_files(settings, forges))
    work_keepers = WorkKeepers(TaskWorkKeeper(sessions, SandboxAccess(backends, vault), saves))
    lifecycle = build_reconciliation(
        sessions,
        backends,
        vault,
        changes=changes,
        public_address=public_address,
        work_keeper=work_keepers,
    )
    drift = build_drift_checker(sessions, backends, vault, lifecycle)
    shutdown_pauser = ShutdownPauser(sessions, lifecycle.admission, notifications)
    retention_job = RetentionJob(sessions, _retention(settings))
    repositories = Repositories(sessions, vault, forges)
    git = build_git_services(
        settings,
        sessions,
        vault,
        backends,
        forges=forges,
        repositories=repositories,
        service_config=lifecycle.service_config,
    )
    handlers = {
        SANDBOX: _named_in_log(lifecycle.reconciler.reconcile),
        ADMISSION: shutdown_pauser.admit,
        SERVICES: _named_in_log(lifecycle.service_config.update),
        SNAPSHOT: lifecycle.snapshots.reconcile,
        TEMPLATE_BUILD: TemplateBuilder(
            sessions, backends, vault, lifecycle.waiters.release, bundled=bundled
        ).work,
        TEMPLATES: TemplateDiscovery(sessions, backends, declared=declared).work,
        DRIFT_CHECK: drift.check,
        HOUSEKEEPING: retention_job.work,
        AGENT_RUN: PauseAfterRun(sessions).work,
        **git.handlers,
    }
    if agent is not None:
        handlers[AGENT_TEMPLATE] = agent.work
    scheduler = SandboxQueueScheduler(
        sessions,
        handlers,
        notifications,
        policy=Policy(
            slots=settings.places, lease=timedelta(seconds=settings.lease_s), grace=_GRACE
        ),
        limits=backends.limits,
    )
    placement = Placement(
        backends,
        defaults=SERVER_DEFAULTS if agent is None else _WITH_AGENT,
        declared=declared,
    )
    use_cases = build_use_cases(
        sessions,
        backends,
        vault,
        lifecycle,
        scheduler,
        changes=changes,
        placement=placement,
        bundled=bundled.templates,
    )
    controller = use_cases.controller
    recordings = open_recordings(
        sessions,
        use_cases.access,
        use_cases.activity,
        changes,
        notifications,
        lease=timedelta(seconds=settings.lease_s),
        bound=settings.command_output_mb * 2**20,
    )
    commands = Commands(sessions, controller, recordings, LogNotifications(notifications))
    task_services = build_task_services(
        TaskParts(
            sessions=sessions,
            controller=controller,
            commands=commands,
            forges=forges,
            repositories=repositories,
            git=git,
            saves=saves,
            save_every=timedelta(seconds=settings.save_every_s),
            snapshots=use_cases.snapshots,
        )
    )
    scheduler.add_handlers(task_services.handlers)
    scheduler.add_handlers(
        build_preparation(
            sessions,
            git,
            repositories,
            controller=controller,
            commands=commands,
            snapshots=use_cases.snapshots,
        )
    )
    browsers = build_browser_services(settings, sessions, vault, controller)
    scheduler.add_handlers({BROWSER_SESSION: browsers.reconciler.reconcile})
    desktops = build_desktop_services(
        sessions,
        vault,
        backends,
        use_cases.access,
        lifecycle.service_config,
        controller,
        grace=timedelta(seconds=settings.desktop_grace_s),
        limits=RecordingLimits(
            most_bytes=settings.recording_mb * 2**20,
            every=timedelta(seconds=settings.recording_copy_s),
        ),
    )
    work_keepers.add(desktops.recording_keeper)
    scheduler.add_handlers(desktops.handlers)
    core = Core(
        browsers=browsers,
        repositories=repositories,
        task_services=task_services,
        desktop_services=desktops,
        forges=forges,
        git_endpoint=git.endpoint,
        settings=settings,
        sessions=sessions,
        vault=vault,
        backends=backends,
        controller=controller,
        commands=commands,
        recordings=recordings,
        streams=StreamHub(sessions, notifications),
        sandbox_access=use_cases.access,
        service_config=lifecycle.service_config,
        snapshots=use_cases.snapshots,
        template_lookup=use_cases.lookup,
        declared_capabilities=declared,
        public_address=public_address,
    )
    return Server(build_components(core), scheduler, retention_job, shutdown_pauser, desktops)


def _agent_template(
    settings: Settings, sessions: Sessions, backends: Backends, bundled: BundledTemplates
) -> AgentTemplate | None:
    first = next(iter(backends.building()), None)
    if not settings.agent_template or first is None or AGENT not in bundled.templates:
        return None
    return AgentTemplate(sessions, bundled.templates[AGENT], first)


def _declared_capabilities(backends: Backends, bundled: BundledTemplates) -> DeclaredCapabilities:
    return DeclaredCapabilities(bundled.capabilities(), backends.capabilities())


def _named_in_log(handler: Handler) -> Handler:
    async def handle_named(job: LeasedJob) -> datetime | None:
        with log_context(sandbox_id=job.subject):
            return await handler(job)

    return handle_named


def _retention(settings: Settings) -> RetentionPeriods:
    return RetentionPeriods(
        ended=timedelta(days=settings.ended_days),
        events=timedelta(days=settings.event_days),
        output=timedelta(days=settings.output_days),
        saves=timedelta(days=settings.save_days),
        recordings=timedelta(days=settings.recording_days),
    )


@asynccontextmanager
async def _background_tasks(server: Server, notifications: Notifications) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        notifications_task = group.create_task(notifications.run(), name="notifications")
        scheduler_task = group.create_task(server.scheduler.run(), name="scheduler")
        activity_task = group.create_task(
            server.components.controller.activity.run(), name="activity"
        )
        recordings_task = group.create_task(server.components.recordings.run(), name="recordings")
        streams_task = group.create_task(server.components.streams.run(), name="streams")
        port_proxy_task = group.create_task(server.components.port_proxy.run(), name="port proxy")
        recorders_task = group.create_task(
            server.components.session_recorders.run(), name="recorders"
        )
        drivers_task = group.create_task(server.components.session_drivers.run(), name="drivers")
        service_logs_task = group.create_task(
            server.components.service_logs.run(), name="service logs"
        )
        event_loop_task = group.create_task(watch_event_loop(), name="event loop")
        yield
        server.scheduler.stop()
        await scheduler_task
        service_logs_task.cancel()
        await server.components.recordings.close(within=_GRACE)
        recordings_task.cancel()
        notifications_task.cancel()
        activity_task.cancel()
        streams_task.cancel()
        port_proxy_task.cancel()
        drivers_task.cancel()
        recorders_task.cancel()
        server.components.port_proxy.close()
        server.components.service_health.close()
        server.components.interpreter_connections.close()
        server.desktops.guest.close()
        event_loop_task.cancel()
