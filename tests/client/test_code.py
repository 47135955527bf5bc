"""Code in a sandbox through the client, with a small interpreter."""

import base64

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient
from sandbox_client.errors import CodeContextNotFound, InterpreterMissing
from sandbox_client.events import CodeEnd, CodeResultEvent, CodeStarted
from sandbox_client.models import CodeExecutionState
from tests.server.reference.example_calls import STAND_INS

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

FIGURE = base64.b64encode(b"a figure").decode()
LISTENS = "until (echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.05; done"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(server):
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base") as box,
    ):
        with pytest.raises(InterpreterMissing, match="49999"):
            await box.run_code("1")
        await box.files.upload(STAND_INS / "interpreter", "interpreter.py")
        await box.start("python3 interpreter.py")
        await box.run(LISTENS, check=True)
        yield box


async def test_run_code__returns_output_results_and_errors(box):
    done = await box.run_code("print('out')\n6 * 7")
    assert (done.state, done.stdout, done.text) == (CodeExecutionState.SUCCEEDED, "out\n", "42")
    failed = await box.run_code("1 / 0")
    assert failed.state is CodeExecutionState.ERROR
    assert failed.error.name == "ZeroDivisionError"


async def test_run_code__calls_back_as_output_arrives(box):
    seen = []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(text='shown')\n1 / 0"
    done = await box.run_code(
        code,
        on_stdout=lambda text: seen.append(("stdout", text)),
        on_stderr=lambda text: seen.append(("stderr", text)),
        on_result=lambda result: seen.append(("result", result.text)),
        on_error=lambda error: seen.append(("error", error.name)),
    )
    assert seen == [
        ("stdout", "out\n"),
        ("stderr", "err\n"),
        ("result", "shown"),
        ("error", "ZeroDivisionError"),
    ]
    assert done.stderr == "err\n"


async def test_start_code__is_followed_again_and_its_figure_read(box):
    started = await box.start_code(f"display(png={FIGURE!r})")
    events = [event async for event in started.follow()]
    assert [type(event) for event in events] == [CodeStarted, CodeResultEvent, CodeEnd]
    found = await box.get_code_execution(started.id)
    assert [event async for event in found.follow(after=events[0].id)] == events[1:]
    assert await found.read_result(0, "png") == b"a figure"
    listed = [one.id async for one in box.list_code_executions()]
    assert listed[0] == started.id


async def test_contexts__are_created_used_and_deleted(box):
    made = await box.contexts.create("python", cwd="/home")
    where = await box.run_code("import os\nos.getcwd()", context_id=made.id)
    assert where.text == "'/home'"
    endless = await box.start_code("while True: pass", context_id=made.id)
    await endless.interrupt()
    assert (await endless.wait()).state is CodeExecutionState.KILLED
    await box.contexts.restart(made.id)
    assert made.id in [one.id for one in await box.contexts.list()]
    await box.contexts.delete(made.id)
    with pytest.raises(CodeContextNotFound, match=made.id):
        await box.contexts.interrupt(made.id)
