"""Sandboxes by capability, and the matrix of capabilities, over the API."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from sandbox_client.models import CapabilityMatrix
from sandbox_server.admin.backends import register_backends
from sandbox_server.db.models import Backend, Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.errors import InvalidRequest, TemplateNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.sandboxes.placement import Placement
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

DECLARED = DeclaredCapabilities({"desktop-office": frozenset({"desktop", "gui", "mcp"})})


@pytest.fixture
async def backends(sessions):
    """Configure two providers that are never called."""
    named = [
        BackendSettings(name="one", api_key=SecretStr("k"), overflow_to="two"),
        BackendSettings(
            name="two",
            api_key=SecretStr("k"),
            templates=("theirs",),
            capabilities={"theirs": frozenset({"gpu"})},
        ),
    ]
    backends = open_backends(named, installation_id=new_id())
    await register_backends(sessions, backends)
    yield backends
    await backends.close()


@pytest.fixture
async def core(core, backends):
    return replace(
        core,
        declared_capabilities=replace(DECLARED, settings=backends.capabilities()),
    )


@pytest.fixture
async def team(app, make_key):
    async with caller_of(app, await make_key(tenant="team", scopes=["sandboxes"])) as team:
        yield team


@pytest.fixture
async def other(app, make_key):
    async with caller_of(app, await make_key(tenant="other", scopes=["sandboxes"])) as other:
        yield other


@pytest.fixture
def add(sessions, team):
    async def add(name, capabilities, *, tenant=None, **builds):
        async with sessions.begin() as session:
            tenant_id = tenant and await session.scalar(
                select(Tenant.id).where(Tenant.name == tenant)
            )
            row = Template(id=new_id(), name=name, tenant_id=tenant_id, capabilities=capabilities)
            session.add(row)
            await session.flush()
            for backend, state in builds.items():
                session.add(
                    TemplateBuild(
                        template_id=row.id,
                        backend=backend,
                        state=state,
                        ready_at=datetime.now(UTC) if state == "ready" else None,
                    )
                )
            later = datetime.now(UTC) + timedelta(hours=1)
            await session.execute(update(Backend).values(templates_at=later))

    return add


async def create(caller, **fields):
    return await caller.post("/v1/sandboxes", json=fields, params={"wait": 1})


async def test_capabilities__a_request_selects_the_template(team, add):
    await add("browser", ["browser", "mcp"], one="ready")
    await add("desktop", ["browser", "desktop", "gui", "mcp"], one="ready")
    made = await create(team, capabilities=["desktop"])
    assert made.status_code == 202
    told = made.json()
    assert (told["template"], told["capabilities"]) == (
        "desktop",
        ["browser", "desktop", "gui", "mcp"],
    )
    assert (await create(team, capabilities=["browser"])).json()["template"] == "browser"
    sized = {"resolution": {"width": 800, "height": 600}}
    assert (await create(team, desktop=sized)).json()["template"] == "desktop"
    both = await create(team, template="desktop", capabilities=["browser"])
    assert both.json()["template"] == "desktop"
    by_session = await team.put(
        "/v1/sandboxes/by-session/s", json={"capabilities": ["desktop"]}, params={"wait": 1}
    )
    assert by_session.json()["template"] == "desktop"


async def test_capabilities__an_unavailable_one_is_refused_with_what_exists(team, add):
    await add("browser", ["browser", "mcp"], one="ready")
    refused = await create(team, capabilities=["desktop"])
    problem = assert_problem(refused, status=422, code="invalid-request")
    assert "No template has the capability desktop." in problem["detail"]
    assert "browser (browser, mcp)" in problem["detail"]


async def test_capabilities__a_contradicting_template_is_refused(team, add):
    await add("browser", ["browser", "mcp"], one="ready")
    refused = await create(team, template="browser", capabilities=["desktop"])
    problem = assert_problem(refused, status=422, code="invalid-request")
    assert (
        "'browser' does not have the capability desktop. It has: browser, mcp."
        in (problem["detail"])
    )


@pytest.mark.parametrize("capabilities", ["desktop", ["No Word"], [""], [7], ["x"] * 17])
async def test_capabilities__malformed_ones_are_refused(team, capabilities):
    assert_problem(
        await create(team, capabilities=capabilities), status=422, code="validation-failed"
    )


async def test_capabilities__a_declared_one_of_a_built_template_is_selectable(team, sessions):
    steps = {"from_image": "debian:12", "steps": [{"run": "true"}]}
    made = await team.post(
        "/v1/templates", json={"name": "mine", "capabilities": ["gpu-2", "gpu-2", "code"], **steps}
    )
    assert made.status_code == 202, made.text
    assert made.json()["capabilities"] == ["code", "gpu-2"]
    waiting = await create(team, capabilities=["gpu-2"])
    assert (waiting.status_code, waiting.json()["template"]) == (202, "mine")
    again = await team.post("/v1/templates/mine/builds", json={})
    assert again.json()["capabilities"] == ["code", "gpu-2"]
    changed = await team.post("/v1/templates/mine/builds", json=steps)
    assert changed.json()["capabilities"] == []


async def test_capabilities__a_template_inherits_those_that_it_does_not_declare(team, add):
    await add("browser", ["browser", "mcp"], one="ready", two="ready")
    for name, declared in (("heir", None), ("other", ["browser"])):
        made = await team.post(
            "/v1/templates",
            json={"name": name, "from_template": "browser", "capabilities": declared},
        )
        assert made.json()["capabilities"] == (declared or ["browser", "mcp"])


async def test_capabilities__a_template_of_another_tenant_is_not_selected(team, other, add):
    await add("theirs-only", ["desktop"], tenant="other", one="ready")
    refused = await create(team, capabilities=["desktop"])
    problem = assert_problem(refused, status=422, code="invalid-request")
    assert "theirs-only" not in problem["detail"]
    assert (await create(other, capabilities=["desktop"])).json()["template"] == "theirs-only"


async def test_capabilities__the_template_is_selected_where_the_request_may_go(team, add):
    await add("a-here", ["mcp"], one="ready")
    await add("b-there", ["mcp"], two="ready")
    made = (await create(team, capabilities=["mcp"], backend="two")).json()
    assert made["template"] == "b-there"
    assert (await create(team, capabilities=["mcp"])).json()["template"] == "a-here"


async def test_capabilities__those_of_a_snapshot_are_those_of_its_sandbox(team, add, sessions):
    async with sessions.begin() as session:
        tenant_id = await session.scalar(select(Tenant.id).where(Tenant.name == "team"))
        row = Snapshot(
            id=new_id(),
            tenant_id=tenant_id,
            sandbox_id=new_id(),
            backend="one",
            state="ready",
            capabilities=["browser"],
        )
        session.add(row)
    made = await create(team, template=row.id, capabilities=["browser"])
    assert made.json()["capabilities"] == ["browser"]
    assert_problem(
        await create(team, template=row.id, capabilities=["code"]),
        status=422,
        code="invalid-request",
    )


async def test_capabilities__the_matrix_has_templates_and_backends(team, other, add):
    await add("browser", ["browser", "mcp"], one="ready", two="building")
    await add("mine", ["code"], tenant="team", two="ready")
    told = await team.get("/v1/capabilities")
    matrix = CapabilityMatrix.model_validate(told.json())
    assert matrix.capabilities == ["browser", "code", "desktop", "gpu", "gui", "mcp"]
    states = {each.name: each.backends for each in matrix.templates}
    assert states == {
        "browser": {"one": "ready", "two": "building"},
        "desktop-office": {"one": "missing", "two": "missing"},
        "mine": {"one": "missing", "two": "ready"},
        "theirs": {"one": "missing", "two": "ready"},
    }
    assert {each.name: each.shared for each in matrix.templates}["mine"] is False
    assert [(each.name, each.capabilities) for each in matrix.backends] == [
        ("one", ["browser", "mcp"]),
        ("two", ["code", "gpu"]),
    ]
    told = (await other.get("/v1/capabilities")).json()
    assert "mine" not in {each["name"] for each in told["templates"]}


async def test_capabilities__those_of_a_name_or_an_id(components, team, add, sessions):
    await add("browser", ["browser", "mcp"], one="ready")
    capabilities = components.template_capabilities
    async with sessions() as session:
        tenant_id = await session.scalar(select(Tenant.id).where(Tenant.name == "team"))
        template_id = await session.scalar(select(Template.id))
    for named in ("browser", "Browser", template_id):
        found = await capabilities.capabilities_of(named, tenant_id=tenant_id)
        assert found == {"browser", "mcp"}
    for named in ("theirs", "unheard-of", "not a name"):
        found = await capabilities.capabilities_of(named, tenant_id=tenant_id)
        assert found == ({"gpu"} if named == "theirs" else set())


async def test_capabilities__get_template_shows_them(team, add):
    await add("browser", ["mcp", "browser"], one="ready")
    told = (await team.get("/v1/templates/browser")).json()
    assert told["capabilities"] == ["browser", "mcp"]


async def test_capabilities__a_bundled_template_without_a_build_says_how_to_build_it(
    sessions, backends, add
):
    await add("desktop-office", ["desktop", "gui", "mcp"])
    placement = Placement(backends, declared=DECLARED)
    tenant = Tenant(id=new_id(), name="mine", max_running=1, max_queued=1, defaults={}, rules=[])
    build = "`sandbox-server template build desktop-office`"
    async with sessions() as session:
        with pytest.raises(TemplateNotFound, match=build):
            await placement.decide(session, tenant, SandboxRequest(template="desktop-office"))
        with pytest.raises(InvalidRequest, match=build):
            await placement.decide(
                session, tenant, SandboxRequest(capabilities=frozenset({"desktop"}))
            )
