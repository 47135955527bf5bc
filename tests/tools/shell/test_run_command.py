import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from fastmcp.exceptions import ToolError

from tests.tools.polling import until
from tests.tools.shell.processes import alive


async def run(tools, command, **arguments):
    return (await tools.call_tool("run_command", {"command": command} | arguments)).content[0].text


@pytest.fixture
def place(tool_server, request):
    directory = tool_server.workspace / request.node.name
    directory.mkdir()
    return directory


async def test_run_command__returns_interleaved_output_and_exit_code(tools):
    text = await run(tools, "echo one; echo two >&2; echo three\nprintf four; exit 3")
    assert text == "one\ntwo\nthree\nfour\n[exit code 3]"


async def test_run_command__dev_stderr_can_be_opened(tools):
    text = await run(tools, "echo one; echo two > /dev/stderr; echo three > /dev/stdout")
    assert text == "one\ntwo\nthree\n[exit code 0]"


async def test_run_command__runs_in_the_working_directory_or_cwd(tools, tool_server):
    assert await run(tools, "pwd") == f"{tool_server.workspace}\n[exit code 0]"
    assert await run(tools, "pwd", cwd="/usr") == "/usr\n[exit code 0]"
    with pytest.raises(ToolError, match="cwd /nowhere does not exist"):
        await run(tools, "pwd", cwd="/nowhere")


async def test_run_command__stdin_is_empty(tools):
    assert await run(tools, "cat; read x || echo none") == "none\n[exit code 0]"


async def test_run_command__has_the_sandbox_variables_but_no_token(tools, tool_server):
    tool_server.set(envs={"GREETING": "hello 'you'\nthere"})
    assert await run(tools, 'echo "$GREETING"') == "hello 'you'\nthere\n[exit code 0]"
    assert tool_server.token not in await run(tools, "env")


async def test_run_command__a_timeout_kills_the_command_and_returns_its_output(tools, place):
    command = """
        trap 'echo asked to end' TERM
        (trap '' TERM; echo $BASHPID > stubborn; sleep 600) &
        setsid --wait sh -c 'echo $$ > elsewhere; exec sleep 600' &
        echo begun
        until [ -s stubborn ] && [ -s elsewhere ]; do sleep 0.01; done
        wait; wait; wait
    """
    text = await run(tools, command, timeout_s=1.5, cwd=str(place))
    assert text.startswith("begun\n")
    assert "asked to end\n" in text
    assert "[timed out and killed after 1.5 s." in text
    assert not alive(place / "stubborn")
    assert not alive(place / "elsewhere")


async def test_run_command__a_cancelled_call_ends_the_command(tools, place):
    call = asyncio.create_task(run(tools, "sleep 600 & echo $! > pid; wait", cwd=str(place)))
    await until(lambda: (place / "pid").exists() and (place / "pid").read_text())
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    await until(lambda: not alive(place / "pid"))


async def test_run_command__a_cancelled_call_leaves_no_zombie(tools, place):
    call = asyncio.create_task(run(tools, "echo $$ > pid; exec sleep 600", cwd=str(place)))
    await until(lambda: (place / "pid").exists() and (place / "pid").read_text())
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    process = Path("/proc", (place / "pid").read_text().strip())
    await until(lambda: not process.exists())


async def test_run_command__remaining_processes_keep_writing_to_the_output_file(tools, place):
    command = "(until [ -e go ]; do sleep 0.01; done; echo later; echo done > done) & echo started"
    text = await run(tools, command, cwd=str(place))
    assert text.startswith("started\n[exit code 0; processes that it started are still running")
    (place / "go").touch()
    await until((place / "done").exists)
    (path,) = re.findall(r"their output: (\S+)\]", text)
    file = Path(path)
    await until(lambda: file.read_text() == "started\nlater\n")


async def test_run_command__long_output_is_truncated_and_stored_in_a_file(tools):
    text = await run(tools, "seq 100000; echo end")
    assert len(text) < 31_000
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n100000\nend\n[exit code 0]")
    (path,) = re.findall(r"\n\[… \d+ bytes truncated; full output: (\S+) …\]\n", text)
    file = Path(path)
    assert file.read_text() == "".join(f"{n}\n" for n in range(1, 100_001)) + "end\n"
    assert file.stat().st_mode & 0o777 == 0o600


async def test_run_command__invalid_utf_8_is_replaced(tools):
    assert await run(tools, r"printf 'a\377b\000c'") == "a\ufffdb\0c\n[exit code 0]"


async def test_run_command__progress_contains_the_last_line(tools, place):
    told: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
    os.mkfifo(place / "fifo")

    async def progress(done, total, message):
        told.put_nowait((total, message))

    call = asyncio.create_task(
        tools.call_tool(
            "run_command",
            {"command": "echo one; echo two; cat fifo", "cwd": str(place)},
            progress_handler=progress,
        )
    )
    async with asyncio.timeout(60):
        assert await told.get() == (120, "two")
        (place / "fifo").open("w").close()
        await call


async def test_run_command__reports_signals(tools):
    assert (
        await run(tools, "kill -SEGV $$") == "[no output; killed by signal 11 (Segmentation fault)]"
    )
    assert "the sandbox may be out of memory" in await run(tools, "kill -KILL $$")


async def test_run_command__commands_above_128_kib_are_rejected(tools):
    with pytest.raises(ToolError, match="Write it to a file with write_file and run the file"):
        await run(tools, f": {'x' * 140_000}")
