"""fastmcp, installed in a sandbox, with its own client and both versions of the protocol."""

import asyncio
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

SERVER = Path(__file__).with_name("fastmcp_server.py").read_text()
FETCH = "pip install --quiet fastmcp==4.1.2 >/dev/null 2>&1"


async def text_of(call):
    return (await call).content[0].text


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_mcp__a_fastmcp_server_in_a_sandbox_is_reachable_through_the_server(
    api, client_of, make_sandbox, run, mode
):
    sandbox_id = await make_sandbox(tools=SERVER, before=FETCH)
    waiting = asyncio.Event()

    async def note(progress, total, message):
        waiting.set()

    async with client_of(sandbox_id, mode=mode) as client, asyncio.timeout(60):
        assert {tool.name for tool in await client.list_tools()} >= {"wait", "length"}
        called = asyncio.create_task(client.call_tool("wait", {}, progress_handler=note))
        await waiting.wait()
        await client.call_tool("go_on", {})
        assert await text_of(called) == "went on"
        await run(sandbox_id, "rm -r /etc/sandbox")
        assert await text_of(client.call_tool("length", {"text": "x" * 300_000})) == "300000"
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        seen = await text_of(client.call_tool("seen", {}))
    assert api.headers["X-API-Key"] not in seen
