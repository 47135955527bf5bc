"""Discovery of the templates of providers, with the real engine."""

import secrets
from datetime import UTC, datetime, timedelta

import pytest
from e2b import AsyncTemplate
from sqlalchemy import select, update

from sandbox_server.db.models import Backend, Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.jobs.kinds import TEMPLATES
from sandbox_server.providers.registry import Backends, KnownBackend
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.templates.bundled import read_bundled_templates
from sandbox_server.templates.discovery import TemplateDiscovery
from sandbox_server.templates.shared_repository import MISSING
from tests.server.support.fault_proxy import answer_with

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]

BUNDLED = DeclaredCapabilities(read_bundled_templates().capabilities())
NO_TEMPLATES = answer_with(200, "[]", Content_Type="application/json")


@pytest.fixture
async def backends(backend_at, proxy, sessions):
    """Configure the engine twice: directly, and behind a proxy under another name."""
    clients = backend_at(), backend_at(proxy.url, name="other")
    async with sessions.begin() as session:
        session.add_all(Backend(name=one.name, capacity=1) for one in clients)
        session.add(Tenant(id=TENANT, name="mine", max_running=1, max_queued=1))
    return Backends({one.name: KnownBackend(client=one) for one in clients})


TENANT = new_id()


@pytest.fixture
def list_templates(sessions, backends):
    async def list_templates(name="local"):
        job = LeasedJob(id=1, kind=TEMPLATES, subject=name, attempts=1, leased_by="a")
        return await TemplateDiscovery(sessions, backends, declared=BUNDLED).work(job)

    return list_templates


@pytest.fixture
def builds_of(sessions):
    """Read the build of a name at each backend."""

    async def builds_of(name):
        async with sessions() as session:
            found = await session.scalars(
                select(TemplateBuild)
                .join(Template)
                .where(Template.name == name)
                .order_by(TemplateBuild.backend)
            )
            return list(found)

    return builds_of


@pytest.fixture
def place(sessions, backends):
    async def place(**asked):
        async with sessions() as session:
            tenant = await session.get_one(Tenant, TENANT)
            return await Placement(backends).decide(session, tenant, SandboxRequest(**asked))

    return place


@pytest.fixture
async def built_elsewhere(options, backend_at):
    """Build a template with only the SDK; returns its name and id."""
    name = f"elsewhere-{secrets.token_hex(4)}"
    template = AsyncTemplate().from_template("base").set_envs({"A": name})
    built = await AsyncTemplate.build(template, name, cpu_count=1, memory_mb=256, **options)
    yield name, built.template_id
    await backend_at().templates.delete(name)


async def test_template_discovery__a_template_built_elsewhere_is_shared(
    list_templates, builds_of, place, built_elsewhere
):
    name, provider_id = built_elsewhere
    assert await list_templates() is not None
    [build] = await builds_of(name)
    assert (build.backend, build.state, build.backend_template_id) == (
        "local",
        "ready",
        provider_id,
    )
    found = await place(template=name, backend="local")
    assert found.resources == {"cpu_count": 1, "memory_mb": 256}
    assert found.template_id is None
    with pytest.raises(InvalidRequest, match="256 MB of memory"):
        await place(template=name, backend="local", resources={"memory_mb": 512})


async def test_template_discovery__a_missing_template_is_marked(
    list_templates, builds_of, place, built_elsewhere, backend_at
):
    name, _ = built_elsewhere
    await list_templates()
    await list_templates("other")
    await backend_at().templates.delete(name)
    await list_templates()
    await list_templates("other")
    for build in await builds_of(name):
        assert (build.state, build.ready_at) == ("failed", None)
        assert "not at its provider any more" in build.state_reason
    with pytest.raises(InvalidRequest, match="not ready at any backend"):
        await place(template=name)


async def test_template_discovery__public_templates_that_the_provider_does_not_list_are_found(
    list_templates, builds_of, proxy
):
    await list_templates()
    proxy.on("GET /v2/templates", NO_TEMPLATES)
    await list_templates("other")
    assert "GET /templates/aliases/base" in proxy.seen
    assert [build.backend for build in await builds_of("base")] == ["local", "other"]


async def test_template_discovery__a_template_is_only_at_the_providers_that_know_it(
    list_templates, builds_of, place, proxy, built_elsewhere
):
    name, _ = built_elsewhere
    await list_templates()
    assert (await place(template=name, backend="other")).candidates == ("other",)
    proxy.on("GET /v2/templates", NO_TEMPLATES)
    proxy.on(f"GET /templates/aliases/{name}", answer_with(404, "{}"))
    await list_templates("other")
    with pytest.raises(InvalidRequest, match="only at local"):
        await place(template=name, backend="other")


async def test_template_discovery__a_tenants_missing_template_is_marked_and_never_shared(
    list_templates, builds_of, sessions, options, backend_at
):
    there, vanished = new_id(), new_id()
    template = AsyncTemplate().from_template("base").set_envs({"A": there})
    built = await AsyncTemplate.build(template, f"sandbox-server-{there}", **options)
    async with sessions.begin() as session:
        for id_, provider_id in ((there, built.template_id), (vanished, new_id())):
            session.add(Template(id=id_, tenant_id=TENANT, name=f"own-{id_}"))
            await session.flush()
            session.add(
                TemplateBuild(
                    template_id=id_,
                    backend="local",
                    backend_template_id=provider_id,
                    state="ready",
                    ready_at=datetime(2026, 1, 1, tzinfo=UTC),
                )
            )
    await list_templates()
    await backend_at().templates.delete(built.template_id)
    assert [one.state for one in await builds_of(f"own-{there}")] == ["ready"]
    [marked] = await builds_of(f"own-{vanished}")
    assert (marked.state, marked.ready_at) == ("failed", None)
    assert await builds_of(f"sandbox-server-{there}") == []


async def test_template_discovery__templates_built_for_a_tenant_are_never_shared(
    list_templates, builds_of, sessions, options, built_elsewhere, backend_at
):
    """Some providers list snapshots as templates."""
    name, provider_id = built_elsewhere
    of_another_installation = new_id()
    template = AsyncTemplate().from_template("base").set_envs({"A": of_another_installation})
    other = await AsyncTemplate.build(template, of_another_installation, **options)
    async with sessions.begin() as session:
        session.add(
            Snapshot(
                id=new_id(),
                tenant_id=TENANT,
                sandbox_id=new_id(),
                backend="local",
                backend_snapshot_id=f"{provider_id}:default",
            )
        )
    await list_templates()
    await backend_at().templates.delete(other.template_id)
    assert await builds_of(name) == []
    assert await builds_of(of_another_installation) == []
    assert await builds_of("base") != []


async def test_template_discovery__an_unreachable_provider_changes_nothing(
    list_templates, builds_of, proxy
):
    await list_templates("other")
    proxy.on("GET /v2/templates", answer_with(500))
    assert await list_templates("other") is not None
    assert [build.state for build in await builds_of("base")] == ["ready"]


async def test_template_discovery__templates_missing_for_long_are_removed(
    list_templates, builds_of, sessions, built_elsewhere, backend_at
):
    name, _ = built_elsewhere
    await list_templates()
    await backend_at().templates.delete(name)
    await list_templates()
    assert len(await builds_of(name)) == 1
    async with sessions.begin() as session:
        long_ago = TemplateBuild.seen_at - timedelta(days=8)
        await session.execute(update(TemplateBuild).values(seen_at=long_ago))
    await list_templates()
    assert await builds_of(name) == []
    assert len(await builds_of("base")) == 1


async def test_template_discovery__a_backend_removed_from_the_settings_is_not_listed(
    list_templates,
):
    assert await list_templates("gone") is None


@pytest.mark.parametrize("state", ["building", "failed"])
async def test_template_discovery__our_own_builds_state_takes_precedence_over_the_list(
    list_templates, builds_of, sessions, built_elsewhere, state
):
    name, _ = built_elsewhere
    await list_templates()
    ours = {"digest": "d", "state": state, "state_reason": "a reason", "ready_at": None}
    async with sessions.begin() as session:
        await session.execute(update(TemplateBuild).values(**ours))
    await list_templates()
    [build] = await builds_of(name)
    assert {name: getattr(build, name) for name in ours} == ours


async def test_template_discovery__our_own_missing_build_can_reappear(
    list_templates, builds_of, sessions, built_elsewhere
):
    name, _ = built_elsewhere
    await list_templates()
    async with sessions.begin() as session:
        missing = {"state": "failed", "state_reason": MISSING, "ready_at": None}
        await session.execute(update(TemplateBuild).values(digest="d", **missing))
    await list_templates()
    [build] = await builds_of(name)
    assert (build.state, build.state_reason, build.digest) == ("ready", None, "d")


async def test_template_discovery__templates_with_the_name_of_a_bundled_one_have_services(
    list_templates, sessions, backend_at, engine
):
    template = AsyncTemplate().from_template("base")
    built = await AsyncTemplate.build(template, "agent-full", **engine.options)
    await list_templates()
    await backend_at().templates.delete(built.template_id)
    async with sessions() as session:
        columns = (Template.name, Template.has_services, Template.capabilities)
        known = (await session.execute(select(*columns))).all()
    assert ("agent-full", True, ["browser", "mcp"]) in known
    assert ("base", False, []) in known
