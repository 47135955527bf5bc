"""Clients that leave, code that does not end, and kernels that die."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from sandbox_tools.interpreter.process import CONTEXT_VARIABLE
from sandbox_tools.toolkit.process_tree import find_processes_with, is_alive
from tests.tools.interpreter.interpreter_process import started_interpreter
from tests.tools.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

STUBBORN = (
    "import time\nprint('began')\n"
    "while True:\n  try:\n    time.sleep(60)\n  except KeyboardInterrupt:\n    pass"
)


@pytest.mark.parametrize(
    ("language", "code", "then"),
    [
        ("python", "kept = 1\nprint('began')\nimport time; time.sleep(60)", "print(kept)"),
        ("python", "kept = 1\nprint('began')\nwhile True: pass", "print(kept)"),
        ("python", "kept = 1\nwhile True: print('x' * 1000)", "print(kept)"),
        ("js", "kept = 1; console.log('began'); while (true) {}", "console.log(kept)"),
        ("js", "kept = 1; console.log('began'); await new Promise(() => {})", "console.log(kept)"),
        ("bash", "kept=1; echo began; sleep 60; echo not; sleep 60", "echo $kept"),
        ("bash", "kept=1; echo began; while :; do :; done", "echo $kept"),
        ("bash", "kept=1; yes", "echo $kept"),
    ],
)
async def test_disconnect__interrupts_the_code_and_keeps_variables(
    interpreter, language, code, then
):
    context = await interpreter.context(language=language)
    async with interpreter.streaming(code, context_id=context) as lines:
        while json.loads(await anext(lines))["type"] != "stdout":
            pass
    assert (await interpreter.run(then, context_id=context)).text() == "1\n"


async def test_disconnect__code_that_ignores_interrupts_is_restarted_and_the_next_one_told(
    interpreter,
):
    context = await interpreter.context()
    async with interpreter.streaming(STUBBORN, context_id=context) as lines:
        while json.loads(await anext(lines))["type"] != "stdout":
            pass
    told = await interpreter.run("1 + 1", context_id=context)
    assert told.error["name"] == "ContextRestarting"
    assert told.results == []
    assert (await interpreter.run("1 + 1", context_id=context)).result == "2"


async def test_disconnect__while_waiting_never_runs_the_code(interpreter):
    context = await interpreter.context()
    running = asyncio.create_task(interpreter.run("import time; time.sleep(1)", context_id=context))
    await interpreter.wait_busy(context)
    async with interpreter.streaming("ran = True", context_id=context):
        pass
    await running
    assert (await interpreter.run("'ran' in globals()", context_id=context)).result == "False"


async def test_interrupt__ends_the_execution_with_an_error(interpreter):
    context = await interpreter.context()
    running = asyncio.create_task(
        interpreter.run("print(1)\nimport time; time.sleep(60)", context_id=context)
    )
    await interpreter.wait_busy(context)
    while not running.done():
        answer = await interpreter.client.post(f"/contexts/{context}/interrupt")
        assert (answer.status_code, answer.content) == (204, b"")
        await asyncio.wait({running}, timeout=0.2)
    assert (await running).error["name"] in ("KeyboardInterrupt", "ContextRestarting")


async def test_kernel__that_is_killed_ends_the_execution_and_starts_again(interpreter):
    context = await interpreter.context()
    answer = await interpreter.run("import os; os.kill(os.getpid(), 9)", context_id=context)
    assert answer.error["name"] == "KernelEnded"
    assert answer.error["value"].startswith("The kernel was killed, possibly because")
    assert (await interpreter.run("1 + 1", context_id=context)).result == "2"


@pytest.mark.parametrize("language", ["python", "js", "bash"])
async def test_kernel__that_dies_between_executions_is_reported_once(interpreter, language):
    context = await interpreter.context(language=language)
    for process in find_processes_with(CONTEXT_VARIABLE, context):
        os.kill(process.pid, signal.SIGKILL)
    told = await interpreter.run("1", context_id=context)
    assert told.error["name"] in ("ContextRestarting", "KernelEnded")
    assert (await interpreter.run("1", context_id=context)).of("number_of_executions")


@pytest.mark.parametrize(("language", "code"), [("js", "process.exit(3)"), ("bash", "exit 3")])
async def test_kernel__that_exits_is_reported(interpreter, language, code):
    context = await interpreter.context(language=language)
    error = (await interpreter.run(code, context_id=context)).error
    assert error["value"] == "The kernel exited with status 3. Its variables are lost."


async def test_output__that_nobody_reads_makes_the_code_wait(interpreter):
    context = await interpreter.context()
    code = "while True: print('x' * 100_000)"
    async with interpreter.streaming(code, context_id=context) as lines:
        await anext(lines)
        await asyncio.sleep(1)  # the code would write gigabytes meanwhile
        kernel = find_processes_with(CONTEXT_VARIABLE, context)
        pids = [interpreter.process.pid, *(process.pid for process in kernel)]
        assert max(_memory_mb(pid) for pid in pids) < 200
        assert (await interpreter.run("1 + 1")).result == "2"
    assert (await interpreter.run("1 + 1", context_id=context)).result == "2"


async def test_server__that_is_killed_takes_its_kernels_with_it(tmp_path):
    leave = (
        "import subprocess; print(subprocess.Popen(['sleep', '88'], start_new_session=True).pid)"
    )
    async with started_interpreter(tmp_path) as interpreter:
        contexts = [context["id"] for context in await interpreter.contexts()]
        left = int((await interpreter.run(leave)).text())
        interpreter.process.kill()
        await interpreter.process.wait()
        await until(lambda: _are_gone(contexts, but=left))
        assert is_alive(left)
    async with started_interpreter(tmp_path, sockets=interpreter.sockets) as interpreter:
        assert not is_alive(left)
        assert (await interpreter.run("1 + 1")).result == "2"


def _are_gone(contexts: list[str], *, but: int) -> bool:
    living = [
        one.pid for context in contexts for one in find_processes_with(CONTEXT_VARIABLE, context)
    ]
    return set(living) <= {but}


def _memory_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) >> 10
