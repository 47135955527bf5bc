import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError

from tests.ports import free_port
from tests.tools.gateway.http_server import started_remote
from tests.tools.gateway.processes import until


async def add(client, name, **entry):
    result = await client.call_tool("mcp_add_server", {"name": name, **entry})
    return result.structured_content


async def status(client, name):
    listed = (await client.call_tool("mcp_list_servers")).structured_content
    return next(server for server in listed["servers"] if server["name"] == name)


def client_with(tool_server, headers):
    transport = StreamableHttpTransport(
        f"{tool_server.url}/mcp/", headers=headers, auth=tool_server.token
    )
    return Client(transport)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_gateway__the_callers_credentials_are_not_forwarded_to_servers(
    tool_server, transport
):
    headers = {"X-Caller": "caller's", "Cookie": "a=caller's"}
    name = f"headers-{transport}"
    async with started_remote(transport=transport) as remote:
        async with client_with(tool_server, headers) as client:
            own = {"Authorization": "Bearer of-the-entry"}
            added = await add(client, name, url=remote.url, type=transport, headers=own)
            assert added["state"] == "ready", added
            assert (await client.call_tool(f"{name}__double", {"number": 4})).data == 8
            await client.call_tool("mcp_remove_server", {"name": name})
        assert remote.requests
        for request in remote.requests:
            assert request["authorization"] == "Bearer of-the-entry"
            assert not any("caller's" in value for value in request.values())
            assert not any(tool_server.token in value for value in request.values())


async def test_gateway__progress_of_a_remote_call_is_forwarded(tool_server, tools):
    told = []

    async def note(*progress):
        told.append(progress)

    async with started_remote() as remote:
        await add(tools, "progress", url=remote.url)
        await tools.call_tool("progress__slow", progress_handler=note)
        await until(lambda: told)
        await tools.call_tool("mcp_remove_server", {"name": "progress"})
    assert told == [(1, 2, "half")]


async def test_gateway__reconnects_to_a_remote_server_that_starts_late_or_restarts(
    tool_server, tools
):
    port = free_port()
    added = await add(tools, "late", url=f"http://127.0.0.1:{port}/mcp")
    assert (added["state"], added["tools"]) == ("failed", [])
    with pytest.raises(ToolError, match="MCP server late: Connection refused"):
        await tools.call_tool("late__double", {"number": 4})
    async with started_remote(port=port):
        while (await status(tools, "late"))["state"] != "ready":
            pass
        assert (await tools.call_tool("late__double", {"number": 4})).data == 8
    with pytest.raises(ToolError):
        await tools.call_tool("late__double", {"number": 4})
    await tools.call_tool("mcp_remove_server", {"name": "late"})


async def test_gateway__reports_http_status_401_of_a_remote_server(tool_server, tools):
    """The tool server itself is one that wants a token."""
    added = await add(tools, "locked", url=f"{tool_server.url}/mcp/")
    assert "401" in added["error"]
    await tools.call_tool("mcp_remove_server", {"name": "locked"})
