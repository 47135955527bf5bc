import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PAGE = "<title>A page</title><button onclick='document.title=1+1'>Add</button>"


def client_of(computer):
    headers = {"Host": computer.host(6060), "Authorization": f"Bearer {computer.token}"}
    url = f"{computer.options['sandbox_url']}/mcp/"
    return Client(StreamableHttpTransport(url, headers=headers), timeout=120)


async def test_agent_full__the_browser_opens_a_server_in_the_sandbox(computer):
    computer.settle()
    computer.sandbox.files.write("/workspace/site/index.html", PAGE)
    async with client_of(computer) as client:
        await client.call_tool(
            "run_command",
            {"command": "cd site && exec python -m http.server 8000", "background": True},
        )
        computer.wait("curl --silent http://127.0.0.1:8000 >/dev/null")
        seen = await client.call_tool("browser_navigate", {"url": "http://127.0.0.1:8000"})
        assert any("A page" in getattr(part, "text", "") for part in seen.content)
        assert any(part.type == "image" for part in seen.content)
        clicked = await client.call_tool("browser_click", {"selector": "button"})
        assert not clicked.is_error


async def test_agent__offers_only_tools_whose_programs_are_installed(slim_computer, computer):
    for one in (slim_computer, computer):
        one.settle()
    offered = {}
    for name, one in [("slim", slim_computer), ("full", computer)]:
        async with client_of(one) as client:
            offered[name] = {tool.name for tool in await client.list_tools()}
    assert {"read_file", "run_command"} <= offered["slim"]
    assert offered["slim"] <= offered["full"]
    missing = offered["full"] - offered["slim"]
    assert {"claude_code", "codex"} <= missing
