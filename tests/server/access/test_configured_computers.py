"""Desktops, browsers and MCP servers in the configuration of a tenant, and the requests that they apply to."""

import json

import pytest
from sqlalchemy import select

from sandbox_server.access.configuration.file import read_configurations
from sandbox_server.access.configuration.service import apply_configurations
from sandbox_server.browsers.file_parts import BrowserFiles
from sandbox_server.browsers.preparation import proxies_id
from sandbox_server.db.models import BrowserSession, Sandbox, Template, Tenant
from sandbox_server.domain.computers.defaults import MASK
from sandbox_server.sandboxes.services.encrypted_columns import open_envs
from tests.server.access.test_configuration import SEED, URL, backends, core, create, other, team
from tests.server.http.test_problems import assert_problem

__all__ = ["backends", "core", "other", "team"]

SIZE = {"resolution": {"width": 1920, "height": 1080}, "dpi": 96}
PROXY = {"server": "http://proxy.example:3128", "username": "u", "password": "p-secret"}
GITHUB = {"command": "mcp-github", "args": ["stdio"], "env": {"TOKEN": "t-secret"}}
COMPUTERS = {
    **SEED,
    "default": {"timeout_s": 1800, "mcp_servers": {"github": GITHUB}},
    "desktop": {**SEED["desktop"], **SIZE},
    "browser": {"template": "browser", "proxies": [PROXY], "captcha": True},
    "agent_types": {
        **SEED["agent_types"],
        "visual-tester": {
            "capabilities": ["desktop"],
            "desktop": {"dpi": 120, "stream": False, "recording": {"fps": 10}},
            "mcp_servers": {"docs": {"url": "https://docs.example/mcp"}},
        },
        "web-scraper": {
            "capabilities": ["browser"],
            "browser": {"proxies": [{"type": "none"}], "captcha": False},
        },
    },
}


@pytest.fixture
async def configured(team):
    put = await team.put(URL, json=COMPUTERS)
    assert put.status_code == 200, put.text
    return put.json()


@pytest.fixture
def row_of(sessions):
    async def row_of(made):
        async with sessions() as session:
            return await session.get_one(Sandbox, made["id"])

    return row_of


async def test_computers__are_shown_without_secrets_which_are_stored_encrypted(
    team, configured, sessions
):
    assert (await team.get(URL)).json() == configured
    assert "secret" not in json.dumps(configured)
    assert configured["default"]["mcp_servers"]["github"] == {**GITHUB, "env": {"TOKEN": MASK}}
    assert configured["browser"]["proxies"][0]["password"] == MASK
    assert configured["browser"]["proxies"][0]["server"] == PROXY["server"]
    assert configured["agent_types"]["visual-tester"]["desktop"]["dpi"] == 120
    async with sessions() as session:
        tenant = await session.scalar(select(Tenant).where(Tenant.name == "team"))
    stored = json.dumps([tenant.defaults, tenant.rules])
    assert "proxies" not in stored
    assert b"secret" not in tenant.computers_sealed


async def test_computers__a_masked_value_keeps_the_stored_one(
    team, configured, row_of, vault, services
):
    configured["default"]["timeout_s"] = 60
    put = await team.put(URL, json=configured)
    assert put.status_code == 200, put.text
    row = await row_of(await create(team, template="browser"))
    assert open_envs(vault, row.id, row.envs_sealed)["mcp_servers"]["github"] == GITHUB
    configured["default"]["mcp_servers"]["other"] = {"command": "x", "env": {"TOKEN": MASK}}
    problem = assert_problem(
        await team.put(URL, json=configured), status=422, code="invalid-request"
    )
    assert "not stored" in problem["detail"]


async def test_computers__desktops_get_the_settings_that_requests_omit(team, configured, row_of):
    size = {"width": 1920, "height": 1080}
    by_capability = await row_of(await create(team, capabilities=["desktop"]))
    assert by_capability.desktop == {**size, "dpi": 96}
    tester = await row_of(await create(team, agent_type="visual-tester"))
    assert tester.desktop == {**size, "dpi": 120, "stream": False, "fps": 10}
    own = {"resolution": {"width": 800, "height": 600}, "stream": True, "recording": None}
    asked = await row_of(await create(team, agent_type="visual-tester", desktop=own))
    assert asked.desktop == {"width": 800, "height": 600, "dpi": 120, "stream": True, "fps": None}
    assert (await row_of(await create(team, template="browser"))).desktop is None


@pytest.fixture
async def services(sessions):
    """Let the templates have the services that read MCP servers."""
    async with sessions.begin() as session:
        for template in await session.scalars(select(Template)):
            template.has_services = True


async def test_computers__sandboxes_get_the_mcp_servers_that_requests_do_not_name(
    team, services, configured, row_of, vault
):
    async def servers_of(**fields):
        row = await row_of(await create(team, **fields))
        return open_envs(vault, row.id, row.envs_sealed).get("mcp_servers", {})

    assert await servers_of(template="browser") == {"github": GITHUB}
    docs = {"docs": {"url": "https://docs.example/mcp"}}
    assert await servers_of(agent_type="visual-tester") == {"github": GITHUB, **docs}
    own = {"github": {"url": "https://mine.example/mcp"}}
    assert await servers_of(agent_type="visual-tester", mcp_servers=own) == {**own, **docs}
    assert await servers_of(template="base") == {}


async def test_computers__browser_sessions_get_proxies_and_captcha(
    team, configured, sessions, vault
):
    async def session_of(path="/v1/browsers", **fields):
        made = await team.post(path, params={"wait": 0}, json=fields)
        assert made.is_success, made.text
        async with sessions() as session:
            row = await session.get_one(BrowserSession, made.json()["id"])
        stored = await BrowserFiles(sessions, vault).find(proxies_id(row.id))
        return row.settings["captcha"], json.loads(stored or b"{}").get("upstreams")

    assert await session_of() == (True, [{"type": "external", **PROXY}])
    assert await session_of(agent_type="web-scraper") == (False, [{"type": "none"}])


async def test_computers__a_file_configures_them(sessions, team, tmp_path, vault, row_of):
    path = tmp_path / "configuration.toml"
    path.write_text(
        "[tenants.team.desktop]\nresolution = { width = 1600, height = 900 }\nrecording = { fps = 5 }\n"
        '[tenants.team.agent_types.visual-tester]\ncapabilities = ["desktop"]\ndesktop = { dpi = 144 }\n'
    )
    await apply_configurations(sessions, read_configurations(path), vault=vault)
    row = await row_of(await create(team, agent_type="visual-tester"))
    assert row.desktop == {"width": 1600, "height": 900, "dpi": 144, "fps": 5}


@pytest.mark.parametrize(
    "configuration",
    [
        {"desktop": {"resolution": {"width": 1, "height": 1}}},
        {"desktop": {"stream": "yes"}},
        {"browser": {"proxies": [{"username": "u"}]}},
        {"browser": {"proxies": True}},
        {"default": {"mcp_servers": ["a"]}},
        {"agent_types": {"a": {"browser": {"captcha": 1}}}},
    ],
)
async def test_computers__malformed_ones_are_refused(team, configuration):
    refused = await team.put(URL, json=configuration)
    assert_problem(refused, status=422, code="validation-failed")
