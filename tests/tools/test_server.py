import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import httpx
import httpx2
import pytest
from fastmcp.exceptions import ToolError
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.tools.polling import until
from tests.tools.tool_server_process import started_tool_server


def _request(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _headers(token=None):
    headers = [
        (b"Accept", b"application/json, text/event-stream"),
        (b"Content-Type", b"application/json"),
    ]
    if token is not None:
        headers.append((b"Authorization", b"Bearer " + token.encode("latin-1")))
    return headers


async def status_of(server, *, token=None, content=None):
    """POST to the tool server as no client of MCP would, and give the status of its answer."""
    content = content or json.dumps(_request("tools/list", {})).encode()
    async with httpx.AsyncClient(headers=_headers(token)) as client:
        return (await client.post(f"{server.url}/mcp/", content=content)).status_code


async def test_tool_server__requests_need_the_token(tool_server):
    assert await status_of(tool_server) == 401
    for wrong in ("wrong", "gr\xfcn", f"{tool_server.token}x", tool_server.token[:-1]):
        assert await status_of(tool_server, token=wrong) == 401
    assert await status_of(tool_server, token=tool_server.token) != 401


async def test_tool_server__a_replaced_token_takes_effect_at_once(tmp_path):
    async with started_tool_server(tmp_path) as server:
        server.set(token="another")
        assert await status_of(server, token=server.token) == 401
        assert await status_of(server, token="another") != 401
        server.settings.unlink()
        assert await status_of(server, token="another") == 401


async def test_tool_server__large_bodies_are_rejected(tool_server):
    async def parts():
        for _ in range(80):
            yield b" " * 65_536

    for body in (b" " * 5_000_000, parts()):
        assert await status_of(tool_server, token=tool_server.token, content=body) == 413


async def test_tool_server__health_needs_no_token_and_contains_no_secrets(tool_server, tools):
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{tool_server.url}/health")
    told = answer.json()
    assert told["status"] == "ok"
    assert told["version"] == version("sandbox-server")
    assert told["tools"] == len(await tools.list_tools())
    for secret in (tool_server.token, str(tool_server.workspace)):
        assert secret not in answer.text


async def test_tool_server__the_current_directory_is_the_default_working_directory(tmp_path):
    async with started_tool_server(tmp_path, is_given=False) as server:
        (server.workspace / "here").write_text("hello\n")
        async with server.client() as client:
            read = await client.call_tool("read_file", {"path": "here"})
            said = await client.call_tool("run_command", {"command": "pwd; cat here"})
    assert read.content[0].text == "1\thello"
    assert said.content[0].text.startswith(f"{server.workspace}\nhello\n")


async def test_tool_server__all_tools_and_parameters_have_descriptions(tools):
    for tool in await tools.list_tools():
        assert tool.description, tool.name
        assert tool.annotations.read_only_hint is not None, tool.name
        for name, argument in tool.input_schema["properties"].items():
            assert argument.get("description"), f"{tool.name} does not say what its {name} is"


async def test_tool_server__text_results_have_no_structured_copy(tools):
    for tool in await tools.list_tools():
        assert "x-fastmcp-wrap-result" not in (tool.output_schema or {}), tool.name


async def test_tool_server__invalid_arguments_are_explained(tools):
    with pytest.raises(ToolError) as failed:
        await tools.call_tool("read_file", {"file": "x"})
    assert str(failed.value).startswith("Invalid arguments for read_file. ")
    assert "path: Missing required argument" in str(failed.value)
    assert "pydantic" not in str(failed.value)


@asynccontextmanager
async def official_client(server, mode):
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{server.url}/mcp/", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.fixture(params=["legacy", "2026-07-28"])
def mode(request):
    return request.param


async def test_tool_server__the_official_client_receives_text_images_and_errors(tool_server, mode):
    (tool_server.workspace / "text").write_text("hello\n")
    image = b"\x89PNG\r\n\x1a\n" + os.urandom(740_000)
    (tool_server.workspace / "image").write_bytes(image)
    async with official_client(tool_server, mode) as client:
        text = await client.call_tool("read_file", {"path": "text"})
        shown = await client.call_tool("read_file", {"path": "image"})
        failed = await client.call_tool("read_file", {"path": "nothing"})
    assert text.content[0].text == "1\thello"
    assert base64.b64decode(shown.content[0].data) == image
    assert failed.is_error
    assert failed.content[0].text.startswith("nothing does not exist in ")


def make_huge(path):
    with path.open("wb") as file:
        file.write(b"text\n" * 20_000)
        file.truncate(2**42)


@pytest.fixture
def huge(tool_server):
    """Give a file that takes minutes to read, and no room."""
    path = tool_server.workspace / "huge"
    make_huge(path)
    yield path
    path.unlink()


async def test_tool_server__a_cancelled_call_stops_reading(tool_server, mode, huge):
    open_files = Path(f"/proc/{tool_server.process.pid}/fd")

    def is_reading():
        return any(os.path.realpath(file) == str(huge) for file in open_files.iterdir())

    async with official_client(tool_server, mode) as client:
        call = asyncio.create_task(client.call_tool("read_file", {"path": "huge", "offset": 10**6}))
        await until(is_reading)
        call.cancel()
        await until(lambda: not is_reading())


async def test_tool_server__slow_calls_do_not_block_others(tool_server, tools, huge):
    reads = [
        asyncio.create_task(tools.call_tool("read_file", {"path": "huge", "offset": 10**6}))
        for _ in range(12)
    ]
    open_files = Path(f"/proc/{tool_server.process.pid}/fd")
    await until(lambda: sum(os.path.realpath(f) == str(huge) for f in open_files.iterdir()) == 12)
    async with asyncio.timeout(30):
        await tools.call_tool("list_directory")
    for read in reads:
        read.cancel()
    await asyncio.wait(reads)


def children_of(server):
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


async def test_tool_server__a_cancelled_search_ends(tool_server, mode, huge):
    before = children_of(tool_server)
    async with official_client(tool_server, mode) as client:
        call = asyncio.create_task(client.call_tool("grep", {"path": "huge", "pattern": "needle"}))
        await until(lambda: children_of(tool_server) != before)
        call.cancel()
        await until(lambda: children_of(tool_server) == before)


async def test_tool_server__sigterm_ends_running_calls(tmp_path):
    async with (
        started_tool_server(tmp_path) as server,
        httpx.AsyncClient(headers=_headers(server.token), timeout=60) as client,
    ):
        make_huge(server.workspace / "huge")
        url = f"{server.url}/mcp/"
        about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "raw", "version": "1"}}
        started = await client.post(url, json=_request("initialize", about | {"capabilities": {}}))
        client.headers["Mcp-Session-Id"] = started.headers["mcp-session-id"]
        search = {"name": "grep", "arguments": {"path": "huge", "pattern": "needle"}}
        listening, searching = (
            asyncio.create_task(client.get(url)),
            asyncio.create_task(client.post(url, json=_request("tools/call", search))),
        )
        await until(lambda: children_of(server))
        [program] = children_of(server)
        server.process.terminate()
        await server.process.wait()
        await until(lambda: not Path(f"/proc/{program}").exists())
        await asyncio.gather(listening, searching, return_exceptions=True)


async def test_tool_server__ignores_the_env_file_of_the_project(tmp_path):
    (tmp_path / ".env").write_text("FASTMCP_LOG_LEVEL=verbose\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox_tools", "serve", "--help"), cwd=tmp_path, stdout=DEVNULL
    )
    assert await process.wait() == 0
