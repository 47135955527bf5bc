import httpx
import pytest
from fastmcp.exceptions import ToolError


async def test_a_file_is_read_by_a_client_with_the_token(tools, tool_server):
    (tool_server.workspace / "greeting.txt").write_text("hello\n")
    result = await tools.call_tool("read_file", {"path": "greeting.txt"})
    assert "hello" in result.content[0].text


async def test_a_client_without_the_right_token_is_refused(tool_server):
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {tool_server.token}"},
    ):
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{tool_server.url}/mcp/", headers=headers, json={})
        assert answer.status_code == 401


async def test_health_is_told_to_anybody(tool_server):
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{tool_server.url}/health")
    told = answer.json()
    assert told["status"] == "ok"
    assert told["tools"] >= 1


async def test_wrong_arguments_are_told_in_a_sentence(tools):
    with pytest.raises(ToolError) as failed:
        await tools.call_tool("read_file", {"file": "x"})
    assert str(failed.value).startswith("read_file was called with wrong arguments. ")
    assert "path: Missing required argument" in str(failed.value)
    assert "pydantic" not in str(failed.value)
