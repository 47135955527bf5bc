"""Contexts that nobody uses: kernels of other languages than Python are stopped."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from sandbox_tools.interpreter.process import CONTEXT_VARIABLE
from sandbox_tools.toolkit.process_tree import find_processes_with
from tests.tools.interpreter.interpreter_process import started_interpreter
from tests.tools.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINUTES = 0.02


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def impatient(tmp_path_factory):
    directory = tmp_path_factory.mktemp("idle")
    async with started_interpreter(directory, "--idle-minutes", str(MINUTES)) as interpreter:
        yield interpreter


def is_stopped(context):
    return not find_processes_with(CONTEXT_VARIABLE, context)


@asynccontextmanager
async def context_of(interpreter, language, code):
    answer = await interpreter.client.post("/contexts", json={"language": language})
    context = answer.json()["id"]
    await interpreter.run(code, context_id=context)
    yield context
    await interpreter.client.delete(f"/contexts/{context}")


async def test_idle__the_next_execution_is_told_once_that_variables_are_lost(impatient):
    async with context_of(impatient, "bash", "kept=1") as context:
        await until(lambda: is_stopped(context))
        assert context in [one["id"] for one in await impatient.contexts()]
        error = (await impatient.run("echo ran", context_id=context)).error
        assert error["name"] == "ContextRestarting"
        assert error["value"] == (
            "The context was stopped because no code had run in it for 0.02 minutes. "
            "Its variables are lost. Run your code again."
        )
        assert (await impatient.run("echo ran", context_id=context)).text() == "ran\n"


async def test_idle__a_context_without_variables_starts_again_unnoticed(impatient):
    [context] = [one for one in await impatient.contexts() if one["language"] == "javascript"]
    await until(lambda: is_stopped(context["id"]))
    assert (await impatient.run("1 + 1", language="js")).result == "2"


async def test_idle__python_is_never_stopped(impatient):
    await impatient.run("kept = 41")
    async with context_of(impatient, "bash", "true") as context:
        await until(lambda: is_stopped(context))
    assert (await impatient.run("kept + 1")).result == "42"


@pytest.mark.parametrize(
    ("language", "code", "after"),
    [
        ("bash", "sleep 100 & kept=1", "echo $kept"),
        ("js", "kept = 1; require('net').createServer().listen(0); 0", "console.log(kept)"),
    ],
)
async def test_idle__what_runs_in_the_background_keeps_its_context(
    impatient, language, code, after
):
    async with (
        context_of(impatient, language, code) as context,
        context_of(impatient, "bash", "true") as other,
    ):
        await until(lambda: is_stopped(other))
        await asyncio.sleep(MINUTES * 60)
        assert (await impatient.run(after, context_id=context)).text() == "1\n"


async def test_idle__running_code_and_paused_time_do_not_count(impatient):
    async with context_of(impatient, "bash", "kept=1") as context:
        answer = await impatient.run(f"sleep {MINUTES * 60 * 2}; echo $kept", context_id=context)
        assert answer.text() == "1\n"
        # As the engine does it: no time passes for the interpreter.
        pids = [
            impatient.process.pid,
            *(p.pid for p in find_processes_with(CONTEXT_VARIABLE, context)),
        ]
        for signal in ("STOP", "CONT"):
            for pid in pids:
                await (await asyncio.create_subprocess_exec("kill", f"-{signal}", str(pid))).wait()
            if signal == "STOP":
                time.sleep(MINUTES * 60 * 2)  # noqa: ASYNC251 - nothing else is to run
        assert (await impatient.run("echo $kept", context_id=context)).text() == "1\n"
