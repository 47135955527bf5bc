"""The real tool server, used by both variants of the client and by LangChain."""

import asyncio
import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from langchain_core.messages import ToolCall

from sandbox_client import AsyncToolSession, ToolSession
from sandbox_client._async.transport import AsyncTransport
from sandbox_client._sync.transport import Transport
from sandbox_client.langchain import async_mcp_tools, mcp_tools
from sandbox_client.protocol.address import Address
from sandbox_client.protocol.mcp_messages import ToolProgress, ToolServerError
from tests.client.sync_in_thread import SyncInThread
from tests.tools.tool_server_process import started_tool_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class ToolServerAddress(Address):
    """The tool server's own, which asks for its token."""

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.api_key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool_server(tmp_path_factory):
    async with started_tool_server(tmp_path_factory.mktemp("tools")) as server:
        yield server


@asynccontextmanager
async def opened(kind, server):
    address = ToolServerAddress(server.url, server.token)
    if kind == "async":
        transport = AsyncTransport(address, timeout=30, retry_for_s=5)
        yield AsyncToolSession(transport, "")
        await transport.close()
    else:
        twin = Transport(address, timeout=30, retry_for_s=5)
        yield SyncInThread(ToolSession(twin, ""))
        twin.close()


@pytest_asyncio.fixture(loop_scope="module", params=["async", "sync"])
async def session(request, tool_server):
    async with opened(request.param, tool_server) as session, session:
        yield session


async def test_mcp__list_and_call_tools(session, tool_server):
    tools = {tool.name: tool for tool in await session.list_tools()}
    assert "path" in tools["read_file"].input_schema["properties"]
    (tool_server.workspace / "told.txt").write_text("written there")
    called = tools["read_file"].call({"path": "told.txt"})
    read = await called if inspect.isawaitable(called) else called
    assert not read.is_error
    assert "written there" in read.text


async def test_mcp__failing_tool_reports_it_in_the_result(session):
    failed = await session.call_tool("read_file", {"path": "missing"})
    assert failed.is_error
    assert "missing" in failed.text


async def test_mcp__unknown_tool_is_an_error(session):
    failed = await session.call_tool("no_such_tool")
    assert failed.is_error
    assert "no_such_tool" in failed.text


async def test_mcp__rejected_request_raises(tool_server):
    async with opened("async", tool_server) as session:
        with pytest.raises(ToolServerError):
            await session._ask("no/such/method", {})


async def test_mcp__progress_callback(session):
    told: list[ToolProgress] = []
    command = {"command": "for i in 1 2 3; do echo $i; sleep 0.6; done", "timeout_s": 30}
    done = await session.call_tool("run_command", command, on_progress=told.append)
    assert "3" in done.text
    assert told


async def test_mcp__lost_session_is_reopened(session, tool_server):
    await session.list_tools()
    lost = session if isinstance(session, AsyncToolSession) else session._inner
    assert lost._session is not None
    headers = {**lost._session, "Authorization": f"Bearer {tool_server.token}"}
    async with httpx.AsyncClient() as other:
        assert (await other.delete(f"{tool_server.url}/mcp/", headers=headers)).is_success
    assert await session.list_tools()


async def test_mcp__concurrent_calls_share_a_session(session):
    commands = [{"command": f"echo {number}"} for number in range(10)]
    answers = await asyncio.gather(
        *(session.call_tool("run_command", command) for command in commands)
    )
    assert all(str(number) in answer.text for number, answer in enumerate(answers))


def a_sandbox(session) -> Any:
    """Give what LangChain's tools need of a sandbox."""
    return SimpleNamespace(mcp_tools=session.list_tools)


async def test_langchain__mcp_tools_are_called_and_errors_returned(tool_server):
    (tool_server.workspace / "told.txt").write_text("for the model")
    async with opened("async", tool_server) as session:
        tools = {tool.name: tool for tool in await async_mcp_tools(a_sandbox(session))}
        order = ToolCall(name="read_file", args={"path": "told.txt"}, id="1", type="tool_call")
        message = await tools["read_file"].ainvoke(order)
        assert "for the model" in message.content
        failed = await tools["read_file"].ainvoke({**order, "args": {"path": "missing"}})
        assert failed.status == "error"
        assert "missing" in failed.content


async def test_langchain__images_become_content_blocks(tool_server, small_png):
    (tool_server.workspace / "a.png").write_bytes(small_png)
    async with opened("sync", tool_server) as threaded:
        tools = await asyncio.to_thread(mcp_tools, a_sandbox(threaded._inner))
        [read] = [tool for tool in tools if tool.name == "read_file"]
        blocks = await asyncio.to_thread(read.invoke, {"path": "a.png"})
        [image] = [block for block in blocks if block["type"] == "image"]
        assert image["mime_type"] == "image/png"
        assert image["base64"]


@pytest.fixture
def small_png():
    return bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
        "0000000c49444154789c63606060000000040001f61738550000000049454e44ae426082"
    )
