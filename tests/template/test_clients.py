"""Clients of other makes use every tool of a full sandbox, through the server."""

import asyncio
import json

import pytest

from sandbox_client import SandboxClient
from sandbox_client.langchain import mcp_tools
from tests.template.clients.environment import work_with_langchain
from tests.template.clients.hands import Hands, Site
from tests.template.clients.official import calling, official_client
from tests.template.clients.work import do_all

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

ERAS = {"handshake": "legacy", "discovered": "2026-07-28"}
PATIENCE_S = 60


@pytest.fixture
def site_of(workplace, pictures):
    """Make sites in the served sandbox, each with a directory of its own there."""

    def make(name):
        workplace.run(f"rm -rf /workspace/{name} && mkdir /workspace/{name}")
        return Site(workplace.urls["mcp"], workplace.server.admin_key, str(pictures), name)

    return make


async def names(client):
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("era", ERAS)
async def test_mcp__the_official_client_uses_every_tool(site_of, era):
    site = site_of(era)
    async with official_client(site, mode=ERAS[era]) as client:
        listed = await names(client)
        hands = Hands(site, calling(client))
        await do_all(hands)
        assert listed - hands.used == set()
        assert await names(client) == listed


def test_mcp__langchains_client_uses_every_tool(site_of):
    listed, used = work_with_langchain(do_all, site_of("langchain"))
    assert listed
    assert listed - used == set()


def test_client__langchain_tools_work_in_the_template(workplace):
    workplace.write("/workspace/told.txt", "for whoever asks")
    with SandboxClient(workplace.server.url, workplace.server.admin_key) as client:
        sandbox = client.get_sandbox(workplace.id)
        tools = {tool.name: tool for tool in sandbox.mcp_tools()}
        assert "for whoever asks" in tools["read_file"].call({"path": "told.txt"}).text
        seen = tools["browser_navigate"].call({"url": "about:blank"})
        assert {"image", "text"} <= {block["type"] for block in seen.content}
        [run] = [tool for tool in mcp_tools(sandbox) if tool.name == "run_command"]
        assert "42" in run.invoke({"command": "echo $((6 * 7))"})


@pytest.mark.parametrize(
    ("name", "tool"), [("claude", "claude__Bash"), ("codex", "codex__codex-reply")]
)
async def test_gateway__a_built_in_server_offers_tools_while_enabled(site_of, name, tool):
    site = site_of(f"built-in-{name}")
    async with official_client(site, mode=ERAS["handshake"]) as client:
        hands = Hands(site, calling(client))
        switched = json.loads(await hands.use("mcp_enable_server", name=name))
        assert switched["state"] == "ready", switched
        assert tool in await names(client)
        await hands.use("mcp_disable_server", name=name)
        assert tool not in await names(client)


@pytest.mark.parametrize("era", ERAS)
async def test_mcp__progress_and_cancellation_reach_the_official_client(site_of, workplace, era):
    begun = asyncio.Event()
    site = site_of(era)

    async def note(done, total, message):
        if message == "begun":
            begun.set()

    async with official_client(site, mode=ERAS[era]) as client:
        command = f"echo $$ >{site.place}/pid; echo begun; exec sleep 600"
        call = asyncio.create_task(
            client.call_tool("run_command", {"command": command}, progress_callback=note)
        )
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
        lives = f"kill -0 $(cat {site.place}/pid)"
        await asyncio.to_thread(workplace.run, lives)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.to_thread(workplace.wait, f"! {lives}")
