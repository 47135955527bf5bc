import secrets
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import select

from sandbox_server.access.secrets import hash_of, new_secret, prefix_of
from sandbox_server.admin.metrics_exporter import MetricsExporter
from sandbox_server.app import create_app
from sandbox_server.browser_services import build_browser_services
from sandbox_server.commands.recordings import open_recordings
from sandbox_server.commands.service import Commands
from sandbox_server.components import Core, build_components
from sandbox_server.db.models import ApiKey, Tenant
from sandbox_server.db.notifications import Notifications
from sandbox_server.desktops.recording_copies import RecordingLimits
from sandbox_server.desktops.services import build_desktop_services
from sandbox_server.domain.ids import new_id
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.service import Forges
from sandbox_server.git_services import build_git_services, build_large_files
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.lifecycle import build_reconciliation, build_use_cases
from sandbox_server.log.hub import StreamHub
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.settings import Settings
from sandbox_server.task_services import (
    TaskParts,
    build_saves,
    build_task_services,
)
from sandbox_server.vault import Vault
from tests.server.support.described_answers import require_described
from tests.server.support.socket_server import running, serving

# Whatever a test of the API is about, its answers are among those that are described.
HEARD = {"response": [require_described]}


@pytest.fixture
def backends():
    return Backends({})


@pytest.fixture
def settings():
    return Settings()


@pytest.fixture
def vault():
    return Vault([secrets.token_bytes(32)])


@pytest.fixture
def notifications(database):
    return Notifications(database)


@pytest.fixture
def use_cases(notifications, sessions, backends, vault):
    """Take requests as a server does whose scheduler is not running: nothing is carried out."""
    return build_use_cases(
        sessions,
        backends,
        vault,
        build_reconciliation(sessions, backends, vault),
        SandboxQueueScheduler(sessions, {}, notifications),
        changes=Changes(notifications),
        placement=Placement(backends),
    )


@pytest.fixture
def controller(use_cases):
    return use_cases.controller


@pytest.fixture
def recordings(notifications, sessions, controller, backends, vault):
    return open_recordings(
        sessions,
        SandboxAccess(backends, vault),
        controller.activity,
        Changes(notifications),
        notifications,
        lease=timedelta(minutes=1),
        bound=2**20,
    )


@pytest.fixture
def commands(notifications, sessions, controller, recordings):
    return Commands(sessions, controller, recordings, LogNotifications(notifications))


@pytest.fixture
def recorded(commands, recordings, streams):
    """Group what records commands and follows logs."""
    return {"commands": commands, "recordings": recordings, "streams": streams}


@pytest.fixture
def service_config(sessions, settings, backends, vault):
    return ServiceConfigWriter(sessions, backends, vault, PublicAddress(settings.url_from_outside))


@pytest.fixture
def task_parts(sessions, settings, use_cases, backends, vault, commands, service_config, tmp_path):
    forges = Forges(sessions, vault, AllowedHosts(settings.forge_hosts))
    repositories = Repositories(sessions, vault, forges)
    return TaskParts(
        sessions=sessions,
        controller=use_cases.controller,
        commands=commands,
        forges=forges,
        repositories=repositories,
        git=build_git_services(
            settings.model_copy(update={"mirror_dir": tmp_path / "mirrors"}),
            sessions,
            vault,
            backends,
            forges=forges,
            repositories=repositories,
            service_config=service_config,
        ),
        saves=build_saves(sessions, vault, build_large_files(settings, forges)),
        save_every=timedelta(minutes=5),
        snapshots=use_cases.snapshots,
    )


@pytest.fixture
async def core(
    sessions,
    settings,
    use_cases,
    backends,
    vault,
    recorded,
    service_config,
    task_parts,
):
    return Core(
        settings=settings,
        sessions=sessions,
        vault=vault,
        backends=backends,
        controller=use_cases.controller,
        sandbox_access=use_cases.access,
        service_config=service_config,
        snapshots=use_cases.snapshots,
        template_lookup=use_cases.lookup,
        public_address=PublicAddress(settings.url_from_outside),
        forges=task_parts.forges,
        repositories=task_parts.repositories,
        task_services=build_task_services(task_parts),
        git_endpoint=task_parts.git.endpoint,
        browsers=build_browser_services(settings, sessions, vault, use_cases.controller),
        desktop_services=build_desktop_services(
            sessions,
            vault,
            backends,
            SandboxAccess(backends, vault),
            service_config,
            use_cases.controller,
            grace=timedelta(seconds=settings.desktop_grace_s),
            limits=RecordingLimits(),
        ),
        **recorded,
    )


@pytest.fixture
async def components(core):
    built = build_components(core)
    yield replace(
        built, metrics_exporter=MetricsExporter(core.sessions, built.overview, max_age=timedelta())
    )
    await close(built)


@pytest.fixture
def streams(sessions, notifications):
    return StreamHub(sessions, notifications)


@pytest.fixture
def app(components):
    return create_app(components)


@pytest.fixture
async def stranger(app):
    """Call the API without a key."""
    async with caller_of(app) as stranger:
        yield stranger


@pytest.fixture
async def make_key(sessions):
    """Make a key of a tenant's, which is made too if there is none; gives the secret."""

    async def make(*, tenant="default", scopes=("admin",), **fields):
        secret = new_secret()
        async with sessions.begin() as session:
            tenant_id = await find_or_make(session, tenant)
            session.add(
                ApiKey(
                    id=new_id(),
                    tenant_id=tenant_id,
                    hash=hash_of(secret),
                    prefix=prefix_of(secret),
                    scopes=list(scopes),
                    **fields,
                )
            )
        return secret

    return make


@pytest.fixture
async def served(server, core):
    """Build what the API of a server calls that has sandboxes at the engine."""
    living = server.living
    built = build_components(
        replace(
            core,
            controller=server.controller,
            snapshots=server.copies,
            commands=server.commands,
            recordings=server.recordings,
            backends=living.backends,
            vault=living.vault,
            sandbox_access=SandboxAccess(living.backends, living.vault),
            service_config=ServiceConfigWriter(
                core.sessions, living.backends, living.vault, core.public_address
            ),
        )
    )
    yield built
    await close(built)


async def close(components):
    """Close what a server closes when it stops."""
    components.port_proxy.close()
    components.service_health.close()
    await components.locks.close()
    await components.forges.close()


@pytest.fixture
async def api(server, served, make_key):
    """Call that server over a socket."""
    key = await make_key(tenant=server.living.tenant_id, scopes=["sandboxes"])
    async with (
        serving(create_app(served)) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"X-API-Key": key},
            timeout=120,
            event_hooks=HEARD,
        ) as api,
    ):
        yield api


@pytest.fixture
async def port(app, streams, notifications):
    """Serve the API with its streams on a socket; gives the port."""
    async with running(notifications.run(), streams.run()), serving(app) as port:
        yield port


@pytest.fixture
async def reader(port, make_key):
    """Follow streams of that server."""
    headers = {"X-API-Key": await make_key(scopes=["read"])}
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20, event_hooks=HEARD
    ) as reader:
        yield reader


@pytest.fixture
async def admin(app, make_key):
    async with caller_of(app, await make_key()) as admin:
        yield admin


async def find_or_make(session, name):
    found = await session.scalar(select(Tenant.id).where(Tenant.name == name))
    if found is not None:
        return found
    session.add(made := Tenant(id=new_id(), name=name, max_running=10, max_queued=10))
    await session.flush()
    return made.id


def caller_of(app, secret=None):
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://server",
        headers=headers,
        event_hooks=HEARD,
    )


async def all_of(caller, path, **params):
    """Go through a list, part by part."""
    while True:
        part = (await caller.get(path, params=params)).json()
        for item in part["items"]:
            yield item
        if part["next_cursor"] is None:
            return
        params["cursor"] = part["next_cursor"]
