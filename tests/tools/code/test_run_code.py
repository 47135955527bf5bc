"""run_code, by a real MCP client, against a small interpreter."""

import asyncio
import base64
import socket
import sys
from contextlib import closing, suppress

import pytest
import pytest_asyncio
from fastmcp import Client, FastMCP

from sandbox_tools.code import register_tools
from sandbox_tools.code.tools import CodeTools
from tests.ports import free_port
from tests.server.reference.example_calls import STAND_INS
from tests.tools.polling import until

FIGURE = base64.b64encode(b"a figure").decode()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def port():
    port = free_port()
    program = [sys.executable, str(STAND_INS / "interpreter"), str(port)]
    interpreter = await asyncio.create_subprocess_exec(*program)

    def listens():
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port))):
            return True
        return False

    await until(listens)
    yield port
    interpreter.terminate()
    await interpreter.wait()


def client_of(port):
    server = FastMCP("test")
    register_tools(server, CodeTools(port=port))
    return Client(server)


@pytest.fixture
async def run(port):
    async with client_of(port) as client:

        async def run(code, **arguments):
            arguments = {"code": code, **arguments}
            return await client.call_tool("run_code", arguments, raise_on_error=False)

        yield run


def text_of(result):
    return result.content[0].text


async def test_run_code__returns_output_and_value_and_keeps_variables(run):
    first = text_of(await run("import sys\nprint('out')\nprint('oops', file=sys.stderr)\nx = 6"))
    assert first.startswith("out\nstderr:\noops\n[")
    assert text_of(await run("x * 7")).startswith("42\n[")


async def test_run_code__returns_figures_as_images(run):
    shown = await run(f"display(png={FIGURE!r}, text='<Figure>')\n'done'")
    assert text_of(shown).startswith("'done'\n")
    assert [(one.mime_type, one.data) for one in shown.content[1:]] == [("image/png", FIGURE)]


async def test_run_code__an_exception_is_its_traceback(run):
    failed = await run("1 / 0")
    assert not failed.is_error
    assert "ZeroDivisionError" in text_of(failed)


async def test_run_code__timeout_interrupts_and_keeps_variables(run):
    late = text_of(await run("kept = 1\nprint('on')\nwhile True: pass", timeout_s=1))
    assert late.startswith("on\n[Timed out after 1 s; the code was interrupted.")
    assert text_of(await run("kept")).startswith("1\n")


async def test_run_code__long_output_is_truncated_where_marked(run):
    flood = text_of(await run("for n in range(200): print('x' * 65536)\nprint('end')"))
    assert "characters truncated" in flood
    assert "end\n[" in flood
    assert len(flood) < 25_000


async def test_run_code__one_message_of_100_mb_is_skipped(run):
    assert "after" in text_of(await run("print('x' * 10**8)\nprint('after')"))


async def test_run_code__a_killed_kernel_is_told_and_restarted(run):
    died = text_of(await run("import os\nos.kill(os.getpid(), 9)"))
    assert "ContextRestarting" in died
    assert text_of(await run("1 + 1")).startswith("2\n")


async def test_run_code__unknown_contexts_and_languages_are_errors(run):
    for arguments, words in (
        ({"context_id": "absent"}, "There is no context 'absent'."),
        ({"language": "cobol"}, "There is no language 'cobol'."),
    ):
        refused = await run("1", **arguments)
        assert refused.is_error
        assert words in text_of(refused)


async def test_run_code__without_an_interpreter_says_so():
    async with client_of(free_port()) as client:
        refused = await client.call_tool("run_code", {"code": "1"}, raise_on_error=False)
    assert refused.is_error
    assert "does not answer" in text_of(refused)
