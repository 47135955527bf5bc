"""Configurations of tenants over the API."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from sandbox_server.access.configuration.file import read_configurations
from sandbox_server.access.configuration.service import apply_configurations
from sandbox_server.admin.backends import register_backends
from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

URL = "/v1/configuration"
TEMPLATES = {
    "code-interpreter-v1": ["code", "mcp"],
    "browser": ["browser", "mcp"],
    "agent-browser": ["browser", "gui", "mcp"],
    "desktop": ["desktop", "gui", "mcp"],
    "desktop-office": ["desktop", "gui", "mcp"],
}
SEED: dict[str, dict[str, Any]] = {
    "default": {"timeout_s": 1800},
    "desktop": {"template": "desktop-office", "timeout_s": 7200},
    "browser": {"template": "browser"},
    "agent_types": {
        "ci-fix": {"template": "code-interpreter-v1", "resources": {"memory_mb": 512}},
        "visual-tester": {"capabilities": ["desktop"]},
        "web-scraper": {"capabilities": ["browser"], "idle_timeout_s": 60},
    },
}


@pytest.fixture
async def backends(sessions):
    """Configure a provider that is never called, with templates."""
    backends = open_backends(
        [BackendSettings(name="one", api_key=SecretStr("k"))], installation_id=new_id()
    )
    await register_backends(sessions, backends)
    async with sessions.begin() as session:
        for name, capabilities in TEMPLATES.items():
            row = Template(id=new_id(), name=name, capabilities=capabilities)
            session.add(row)
            await session.flush()
            session.add(
                TemplateBuild(
                    template_id=row.id, backend="one", state="ready", ready_at=datetime.now(UTC)
                )
            )
    yield backends
    await backends.close()


@pytest.fixture
async def core(core):
    return replace(core, declared_capabilities=DeclaredCapabilities({"agent": frozenset({"mcp"})}))


@pytest.fixture
async def team(app, make_key):
    async with caller_of(app, await make_key(tenant="team", scopes=["sandboxes"])) as team:
        yield team


@pytest.fixture
async def other(app, make_key):
    async with caller_of(app, await make_key(tenant="other", scopes=["sandboxes"])) as other:
        yield other


async def create(caller, **fields):
    created = await caller.post("/v1/sandboxes", json=fields, params={"wait": 1})
    assert created.status_code == 202, created.text
    return created.json()


async def test_configuration__agent_types_get_their_templates(team):
    put = await team.put(URL, json=SEED)
    assert put.status_code == 200, put.text
    assert put.json() == (await team.get(URL)).json()
    templates = {
        name: (await create(team, agent_type=name))["template"] for name in SEED["agent_types"]
    }
    assert templates == {
        "ci-fix": "code-interpreter-v1",
        "visual-tester": "desktop-office",
        "web-scraper": "browser",
    }
    scraper = await create(team, agent_type="web-scraper")
    assert (scraper["timeout_s"], scraper["idle_timeout_s"]) == (1800, 60)
    tester = await create(team, agent_type="visual-tester")
    assert (tester["timeout_s"], tester["capabilities"]) == (7200, ["desktop", "gui", "mcp"])
    assert (await create(team, capabilities=["desktop"]))["template"] == "desktop-office"
    assert (await create(team, agent_type="other"))["template"] == "base"


async def test_configuration__a_requests_own_fields_take_precedence(team):
    await team.put(URL, json=SEED)
    asked = await create(team, agent_type="visual-tester", template="browser", timeout_s=99)
    assert (asked["template"], asked["timeout_s"]) == ("browser", 99)
    asked = await create(team, agent_type="ci-fix", capabilities=["browser"])
    assert asked["template"] == "browser"


async def test_configuration__browser_sessions_get_the_configured_template(team, other):
    await team.put(URL, json={**SEED, "browser": {"template": "agent-browser"}})
    made = {}
    for caller in (team, other):
        session = await caller.post("/v1/browsers", params={"wait": 0}, json={})
        assert session.status_code == 202, session.text
        path = f"/v1/sandboxes/{session.json()['sandbox_id']}"
        made[caller] = (await caller.get(path)).json()["template"]
    assert (made[team], made[other]) == ("agent-browser", "browser")


async def test_configuration__tenants_are_separate(team, other):
    await team.put(URL, json=SEED)
    assert (await other.get(URL)).json()["agent_types"] == {}
    assert (await create(other, agent_type="ci-fix"))["template"] == "base"
    assert (await create(other, capabilities=["desktop"]))["template"] == "desktop"


async def test_configuration__put_resets_what_it_omits(team):
    await team.put(URL, json=SEED)
    await team.put(URL, json={})
    told = (await team.get(URL)).json()
    assert told["agent_types"] == {}
    assert (await create(team, agent_type="ci-fix"))["template"] == "base"


async def test_configuration__a_key_that_only_reads_cannot_change_it(app, make_key):
    async with caller_of(app, await make_key(tenant="team", scopes=["read"])) as reader:
        assert (await reader.get(URL)).status_code == 200
        assert_problem(await reader.put(URL, json=SEED), status=403, code="scope-missing")


async def test_configuration__rules_of_administrators_are_kept(team, admin):
    rules = [
        {"match": {"agent_type": "ci-fix"}, "template": "old"},
        {"match": {}, "timeout_s": 77},
        {"match": {"agent_type": "ci-fix", "template": "browser"}, "timeout_s": 66},
    ]
    await admin.put("/v1/tenants/team", json={"max_running": 3, "rules": rules})
    assert (await team.get(URL)).json()["agent_types"]["ci-fix"]["template"] == "old"
    await team.put(URL, json=SEED)
    tenant = (await admin.get("/v1/tenants/team")).json()
    assert tenant["max_running"] == 3
    assert [rule["match"] for rule in tenant["rules"]] == [
        {"agent_type": "ci-fix", "template": "browser"},
        *({"agent_type": name, "template": None} for name in SEED["agent_types"]),
        {"agent_type": None, "template": None},
    ]
    assert tenant["defaults"]["desktop"]["template"] == "desktop-office"


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"default": {"backend": "two"}}, "default.backend: Unknown backend: 'two'. Backends: one"),
        ({"agent_types": {"a": {"template": "not a name"}}}, "agent_types.a.template: "),
        ({"agent_types": {"a": {"template": "0" * 20}}}, "agent_types.a.template: "),
        (
            {"desktop": {"template": "browser"}},
            "desktop.template: The template 'browser' does not have the capability desktop.",
        ),
        (
            {"agent_types": {"a": {"capabilities": ["gpu"]}}},
            "agent_types.a.capabilities: No template has the capability gpu.",
        ),
    ],
)
async def test_configuration__errors_name_the_key(team, configuration, said):
    refused = await team.put(URL, json=configuration)
    problem = assert_problem(refused, status=422, code="invalid-request")
    assert problem["detail"].startswith(said)
    assert (await team.get(URL)).json()["agent_types"] == {}


@pytest.mark.parametrize(
    ("configuration", "pointer"),
    [
        ({"agent_types": {"a": {"tempalte": "x"}}}, "#/agent_types/a/tempalte"),
        ({"desktop": {"capabilities": ["gui"]}}, "#/desktop/capabilities"),
        ({"agent_types": {"a": {"template": "x", "capabilities": ["gui"]}}}, "#/agent_types/a"),
        ({"default": {"timeout_s": -1}}, "#/default/timeout_s"),
    ],
)
async def test_configuration__malformed_parts_are_located(team, configuration, pointer):
    refused = await team.put(URL, json=configuration)
    problem = assert_problem(refused, status=422, code="validation-failed")
    assert pointer in {error["pointer"] for error in problem["errors"]}


async def test_configuration__a_bundled_template_may_be_configured_before_it_is_built(team):
    put = await team.put(URL, json={"default": {"template": "agent"}})
    assert put.status_code == 200, put.text


async def test_configuration__a_file_configures_tenants_and_creates_missing_ones(
    sessions, team, admin, tmp_path, vault
):
    path = tmp_path / "configuration.toml"
    path.write_text(
        '[tenants.team.agent_types.ci-fix]\ntemplate = "browser"\n[tenants.new.default]\ntimeout_s = 5\n'
    )
    await apply_configurations(sessions, read_configurations(path), vault=vault)
    assert (await create(team, agent_type="ci-fix"))["template"] == "browser"
    assert (await admin.get("/v1/tenants/team")).json()["max_running"] == 10
    assert (await admin.get("/v1/tenants/new")).json()["defaults"]["timeout_s"] == 5
