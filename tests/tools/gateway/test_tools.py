import asyncio
import json
import signal
import stat

import mcp
import pytest
from fastmcp.exceptions import ToolError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.subscriptions import ToolsListChanged

from tests.tools.gateway.conftest import stdio_server
from tests.tools.gateway.processes import alive, until, until_gone
from tests.tools.tool_server_process import started_tool_server


async def add(client, name, *arguments, **more):
    entry = stdio_server(*arguments, **more)
    result = await client.call_tool("mcp_add_server", {"name": name, **entry})
    assert result.structured_content["state"] == "ready", result
    return result.structured_content


async def call(client, tool, **arguments):
    return (await client.call_tool(tool, arguments)).content[0].text


async def processes(client, name):
    return json.loads(await call(client, f"{name}__processes"))


async def status(client, name):
    listed = (await client.call_tool("mcp_list_servers")).structured_content
    found = [server for server in listed["servers"] if server["name"] == name]
    return found[0] if found else {"state": None}


async def names(client):
    return {tool.name for tool in await client.list_tools()}


async def test_mcp_add_server__offers_tools_prefixed_with_the_server_name(tools):
    added = await add(tools, "added")
    assert "added__say" in added["tools"]
    assert set(added["tools"]) <= await names(tools)
    assert await call(tools, "added__say", text="hello") == "hello"


async def test_gateway__results_above_the_message_limit_are_truncated(tools):
    await add(tools, "long")
    assert await call(tools, "long__say", text="x" * 900_000) == "x" * 900_000
    told = await call(tools, "long__say", text="x" * 1_100_000)
    assert len(told) < 51_000
    assert "\n[… 1050000 characters truncated …]\n" in told


async def test_mcp_remove_server__ends_all_processes_of_the_server(tools):
    await add(tools, "removed", "--start-a-grandchild", "--stay")
    pids = await processes(tools, "removed")
    assert len(pids) == 2
    assert all(map(alive, pids))
    await tools.call_tool("mcp_remove_server", {"name": "removed"})
    assert not any(map(alive, pids))
    assert not any(name.startswith("removed__") for name in await names(tools))
    with pytest.raises(ToolError, match="No MCP server 'removed'"):
        await tools.call_tool("mcp_enable_server", {"name": "removed"})


async def test_mcp_disable_server__hides_tools_until_the_server_is_enabled(tools):
    await add(tools, "switched")
    pids = await processes(tools, "switched")
    off = await tools.call_tool("mcp_disable_server", {"name": "switched"})
    assert off.structured_content["state"] == "disabled"
    assert not any(map(alive, pids))
    with pytest.raises(ToolError, match="Enable it with mcp_enable_server"):
        await call(tools, "switched__say", text="hello")
    on = await tools.call_tool("mcp_enable_server", {"name": "switched"})
    assert on.structured_content["state"] == "ready"
    assert await call(tools, "switched__say", text="hello") == "hello"


async def test_gateway__progress_of_a_call_is_forwarded(tools):
    told: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()

    async def note(*progress):
        await told.put(progress)

    await add(tools, "progress")
    await tools.call_tool("progress__work", progress_handler=note)
    async with asyncio.timeout(30):
        assert await told.get() == (1, 2, "half")


async def test_gateway__cancellation_is_forwarded_to_the_server(tools, tmp_path):
    told = asyncio.Event()

    async def note(*_):
        told.set()

    await add(tools, "cancelled")
    marker = tmp_path / "marker"
    arguments = {"marker": str(marker)}
    working = asyncio.create_task(
        tools.call_tool("cancelled__work", arguments, progress_handler=note)
    )
    async with asyncio.timeout(30):
        await told.wait()
    working.cancel()
    await until(lambda: marker.exists() and marker.read_text() == "cancelled")


async def test_tool_list_notifier__notifies_clients_that_used_the_handshake(tool_server, tools):
    told = asyncio.Event()

    async def note(message):
        if isinstance(message, mcp.types.ToolListChangedNotification):
            told.set()

    async with tool_server.client(mode="legacy", message_handler=note) as idle:
        await idle.ping()
        await add(tools, "told")
        async with asyncio.timeout(30):
            await told.wait()
        assert "told__grown" not in await names(idle)
        told.clear()
        await call(tools, "told__grow")
        async with asyncio.timeout(30):
            await told.wait()
        assert "told__grown" in await names(idle)


async def test_tool_list_notifier__notifies_subscribers_of_protocol_2026(tool_server, tools):
    headers = {"Authorization": f"Bearer {tool_server.token}"}
    async with create_mcp_http_client(headers) as http:
        transport = streamable_http_client(f"{tool_server.url}/mcp/", http_client=http)
        async with (
            mcp.Client(transport) as client,
            client.listen(tools_list_changed=True) as events,
        ):
            await add(tools, "listened")
            async with asyncio.timeout(30):
                assert isinstance(await anext(aiter(events)), ToolsListChanged)
            listed = await client.list_tools(cache_mode="bypass")
            assert "listened__say" in {tool.name for tool in listed.tools}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "x"}, "Pass either command or url."),
        ({"name": "x", "command": "y", "url": "http://localhost/"}, "Pass either"),
        ({"name": "a__b", "command": "y"}, "Invalid server name"),
        ({"name": "x", "command": "${UNSET_VARIABLE}"}, "uses the variable UNSET_VARIABLE"),
    ],
)
async def test_mcp_add_server__invalid_servers_are_not_stored(
    tool_server, tools, arguments, sentence
):
    with pytest.raises(ToolError, match=sentence):
        await tools.call_tool("mcp_add_server", arguments)
    listed = (await tools.call_tool("mcp_list_servers")).structured_content
    assert arguments["name"] not in {server["name"] for server in listed["servers"]}


async def test_mcp_remove_server__built_in_servers_can_only_be_disabled(tools):
    with pytest.raises(ToolError, match="claude was not added with mcp_add_server"):
        await tools.call_tool("mcp_remove_server", {"name": "claude"})


async def test_mcp_list_servers__results_contain_no_configuration_values(tool_server, tools):
    secret = "s3cret-of-the-entry"
    await add(tools, "secretive", env={"KEY": secret})
    listed = await tools.call_tool("mcp_list_servers")
    assert secret not in listed.content[0].text
    kept = tool_server.settings.parent / "home/.config/sandbox/mcp.json"
    assert secret in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_gateway__servers_of_the_settings_file_follow_its_changes(tool_server, tools):
    tool_server.set(mcp_servers={"given": stdio_server()})
    while "given__say" not in await names(tools):
        pass
    pids = await processes(tools, "given")
    with pytest.raises(ToolError, match="given is configured by the sandbox's server"):
        await tools.call_tool("mcp_add_server", {"name": "given", "command": "true"})
    tool_server.set()
    await until_gone(pids)


async def test_gateway__a_server_that_hangs_at_start_delays_no_other_call(tool_server, tools):
    hanging = {"command": "sleep", "args": ["600"]}
    tool_server.set(mcp_servers={"hanging": hanging})
    (tool_server.workspace / "here").write_text("here\n")
    async with asyncio.timeout(30):
        while (await status(tools, "hanging"))["state"] != "starting":
            pass
        for _ in range(20):
            await tools.list_tools()
            await tools.call_tool("read_file", {"path": "here"})
    tool_server.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_gateway__no_server_process_outlives_the_tool_server(tmp_path, number):
    async with started_tool_server(tmp_path) as server:
        async with server.client() as client:
            await add(client, "one", "--start-a-grandchild", "--stay")
            pids = await processes(client, "one")
        server.process.send_signal(number)
        await server.process.wait()
    await until_gone(pids)
