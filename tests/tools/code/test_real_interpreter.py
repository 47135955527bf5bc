"""run_code with the interpreter of the templates."""

import pytest
import pytest_asyncio
from fastmcp import Client, FastMCP

from sandbox_tools.code import register_tools
from sandbox_tools.code.tools import CodeTools
from tests.tools.interpreter.interpreter_process import started_interpreter

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FIGURE = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode({PIXEL!r}))"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def interpreter(tmp_path_factory):
    async with started_interpreter(tmp_path_factory.mktemp("interpreter")) as interpreter:
        yield interpreter


async def test_run_code__shares_the_contexts_of_the_interpreter(interpreter):
    server = FastMCP("test")
    register_tools(server, CodeTools(port=interpreter.client.base_url.port))

    async def run(client, code, **arguments):
        arguments = {"code": code, **arguments}
        return (await client.call_tool("run_code", arguments)).content

    async with Client(server) as client:
        await interpreter.run("shared = 41")
        assert (await run(client, "shared + 1"))[0].text.startswith("42\n[")
        assert (await run(client, "print(1 + 1)"))[0].text.startswith("2\n[")
        script = await run(client, "let a = [1, 2]; a.length", language="javascript")
        assert script[0].text.startswith("2\n[")
        [_, figure] = await run(client, FIGURE)
        assert (figure.mime_type, figure.data) == ("image/png", PIXEL)
        late = await run(client, "kept = 1\nwhile True: pass", timeout_s=1)
        assert "Timed out" in late[0].text
        assert (await run(client, "kept"))[0].text.startswith("1\n[")
