"""LangChain's tools for commands and files, in a real sandbox."""

import asyncio

import pytest

from sandbox_client.langchain import basic_tools

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def tools(sandbox):
    """Make the tools of either variant, used in the same way."""
    is_async = not hasattr(sandbox, "_inner")
    made = {tool.name: tool for tool in basic_tools(sandbox if is_async else sandbox._inner)}

    async def use(name, **arguments):
        call = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
        tool = made[name]
        return await (tool.ainvoke(call) if is_async else asyncio.to_thread(tool.invoke, call))

    return use


async def test_langchain__command_returns_output_and_exit_code(tools):
    ran = await tools("run_command", command="echo out; echo err >&2; exit 3")
    assert ran.content == "out\nerr\n[exit code 3]"
    slow = await tools("run_command", command="echo begun; sleep 60", timeout_s=1)
    assert slow.content.startswith("begun\n[timed_out: ")


async def test_langchain__files_are_written_listed_and_read(tools):
    await tools("write_file", path="langchain/a.txt", content="hello")
    assert (await tools("list_files", path="langchain")).content == "file 5 a.txt"
    assert (await tools("read_file", path="langchain/a.txt")).content == "hello"


async def test_langchain__errors_are_returned_to_the_model(tools):
    missing = await tools("read_file", path="/missing")
    assert (missing.status, "/missing" in missing.content) == ("error", True)
    wrong = await tools("run_command", timeout_s="soon")
    assert wrong.status == "error"


async def test_langchain__long_file_is_truncated_in_the_middle(tools):
    await tools("run_command", command="seq 100000 >long.txt")
    read = await tools("read_file", path="long.txt")
    assert "characters omitted" in read.content
    assert len(read.content) < 101_000
