import asyncio

import pytest
import pytest_asyncio
from fastmcp.exceptions import ToolError

from tests.tools.agent_server_process import TIMEOUT_SECONDS
from tests.tools.tool_server_process import started_tool_server, write_settings


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tool_server(agent_server, tmp_path_factory):
    place = tmp_path_factory.mktemp("tools")
    port = str(agent_server.port)
    async with started_tool_server(place, SANDBOX_AGENT_SERVER_PORT=port) as server:
        write_settings(server.settings, token=agent_server.token)
        yield server


@pytest_asyncio.fixture
async def tools(tool_server, agent_server):
    async with tool_server.client(agent_server.token, timeout=TIMEOUT_SECONDS) as client:
        yield client


async def test_claude_code__returns_answer_session_and_changed_files(tools, agent_server):
    told = []

    async def note(done, total, text):
        told.append(text)

    prompt = "model, run: echo made by a tool > tool.txt; cat tool.txt"
    answer = await tools.call_tool("claude_code", {"prompt": prompt}, progress_handler=note)
    first = answer.structured_content
    assert first["output"] == "1 prompts; the tool said: made by a tool"
    assert first["changed_files"] == ["tool.txt"]
    assert first["cost_usd"] > 0
    assert told == ["Bash: as it was told", first["output"]]

    again = {"prompt": "model, run: echo again", "session_id": first["session_id"]}
    answer = await tools.call_tool("claude_code", again)
    assert answer.structured_content["output"] == "2 prompts; the tool said: again"


async def test_claude_code__cancelling_the_call_stops_the_agent(tools, agent_server):
    begun = asyncio.Event()

    async def note(done, total, text):
        begun.set()

    marker = agent_server.workspace / "still"
    prompt = f"model, run: until [ -e {marker} ]; do read -t 0.1 < /dev/null || :; done"
    call = asyncio.create_task(
        tools.call_tool("claude_code", {"prompt": prompt}, progress_handler=note)
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await begun.wait()
        async with agent_server.client() as client:
            await client.ask(type="sessions")
            [busy] = [each for each in (await client.next())["sessions"] if each["busy"]]
            call.cancel()
            await client.ask(type="attach", session_id=busy["session_id"])
            assert (await client.until("result"))[-1]["state"] == "interrupted"


async def test_claude_code__a_failure_names_the_session_to_continue(tools):
    with pytest.raises(ToolError, match=r"(?s)max_turns.*session_id"):
        await tools.call_tool("claude_code", {"prompt": "model, run: true", "max_turns": 1})


async def test_agent_tools__only_installed_agents_are_offered(tools):
    names = [tool.name for tool in await tools.list_tools()]
    assert "claude_code" in names
    assert "codex" not in names
