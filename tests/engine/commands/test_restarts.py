import asyncio
import json
import os
import signal
import sys

import pytest

from sandbox_engine.commands import (
    SandboxGone,
    TerminalSize,
)
from sandbox_engine.commands.spool import Output, Stream
from sandbox_engine.keeper.client import Keeper
from tests.engine.bare_container import (
    bash,
    descriptors,
    eventually,
    follow_to_end,
    keeper_pid,
    read_until,
    run,
)
from tests.engine.commands.command_observers import (
    FINE,
    KILLED,
    processes_gone,
    rest,
    waiting_in_pipe,
)

pytestmark = pytest.mark.needs_engine


async def start_engine(container, *wanted):
    """Have another process start these commands as an engine does."""
    engine = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.engine.crashing_engine", container.directory],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert engine.stdin is not None
    engine.stdin.write(json.dumps(wanted).encode())
    engine.stdin.close()
    return engine


async def crash_engine(container, *wanted):
    """Have an engine start these commands, and kill it while it follows them."""
    engine = await start_engine(container, *wanted)
    assert await engine.stdout.readline() == b"following\n"
    engine.kill()
    await engine.wait()


async def test_command__engine_crash_does_not_affect_the_output(container):
    # On a loaded machine all of it could be over before the crash.
    counting = "seq 1 200000; until [ -e /tmp/go ]; do sleep 0.02; done; seq 200001 400000"
    script = f"echo up; {{ {counting}; }} | tee /tmp/seen; echo finished"
    await crash_engine(container, {"script": script, "tag": "count"})
    (container.directory / "root/tmp/go").touch()
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    output = await rest(table.recall_by_tag("count"))
    lines = output.split(b"\n")[1:-2]
    assert output.endswith(b"400000\nfinished\n")
    numbers = [int(line) for line in lines if line != b"up"]
    assert numbers == list(range(numbers[0], 400_001)), "something is missing in the middle"
    await keeper.close()


async def test_command__output_after_a_crash_is_not_lost_for_a_returning_client(container):
    # More than the backlog and the pipe hold: it waits for its reader rather than losing bytes.
    script = "echo up; while [ ! -e /tmp/go ]; do sleep 0.02; done; seq 1 500000"
    await crash_engine(container, {"script": script, "tag": "count"})
    (container.directory / "root/tmp/go").touch()
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    command = table.by_tag("count")
    await eventually(lambda: waiting_in_pipe(command) > 900_000)
    output = await rest(command)
    assert output == b"".join(b"%d\n" % number for number in range(1, 500_001))
    await keeper.close()


async def test_command__exit_status_is_known_if_the_engine_was_dead(container):
    script = "echo up; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo word; exit 9"
    await crash_engine(container, {"script": script, "tag": "exit"})
    (container.directory / "root/tmp/go").touch()
    await processes_gone(container, b"/tmp/go")
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    outputs, ended = await follow_to_end(table.recall_by_tag("exit").follow())
    assert [output.data for output in outputs] == [b"word\n"]
    assert ended.exit_code == 9
    assert list((container.run_dir / "commands").iterdir()) == []
    await keeper.close()


async def test_command__terminal_and_input_survive_a_crash(container):
    await crash_engine(
        container,
        {"script": "echo up; cat", "terminal": [24, 80], "tag": "terminal"},
        {"script": "echo up; cat; echo end", "stdin": True, "tag": "input"},
    )
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    terminal, other = table.by_tag("terminal"), table.by_tag("input")
    assert terminal.request.terminal == TerminalSize(24, 80)
    terminal.resize(TerminalSize(30, 90))
    await terminal.write(b"hello\n", terminal=True)
    await read_until(terminal.follow(), b"hello\r\nhello\r\n")
    follower = other.follow()
    await other.write(b"again\n", terminal=False)
    other.close_stdin()
    outputs, ended = await follow_to_end(follower)
    assert (b"".join(output.data for output in outputs), ended) == (b"again\nend\n", FINE)
    terminal.signal(signal.SIGKILL)
    await keeper.close()


async def test_command__deadline_survives_a_crash(container):
    await crash_engine(container, {"script": "echo up; sleep 60", "tag": "late", "seconds": 1})
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    async with asyncio.timeout(5):
        _, ended = await follow_to_end(table.recall_by_tag("late").follow())
    assert ended == KILLED
    await keeper.close()


async def test_command__start_interrupted_by_a_crash_is_adopted(container):
    begun = container.directory / "begun"
    slowly = f"touch {begun}; sleep 0.5"
    engine = await start_engine(
        container, {"script": "echo up; sleep 60", "tag": "half", "before": slowly}
    )
    await eventually(begun.exists)
    engine.kill()
    await engine.wait()
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    command = table.by_tag("half")
    await read_until(command.follow(), b"up\n")
    command.signal(signal.SIGKILL)
    await keeper.close()


async def test_command__unclaimed_commands_are_released_after_a_crash(container):
    await crash_engine(container, {"script": "echo up; sleep 60"})
    keeper = await Keeper.connect(container.run_dir)
    keeper.release_unclaimed()
    await keeper.run(["true"])
    assert list((container.run_dir / "commands").iterdir()) == []
    pid = keeper_pid(container.run_dir)
    assert not [name for name in descriptors(pid) if name.startswith("pipe:")]
    await keeper.close()


async def test_command__stopped_engine_leaves_commands_for_adoption(container):
    first = await Keeper.connect(container.run_dir)
    leaving = container.table(first)
    command = await leaving.start(bash("echo up; cat", stdin=True, tag="left"))
    follower = command.follow()
    await read_until(follower, b"up\n")
    leaving.release("the engine is stopping")
    await first.close()
    with pytest.raises(SandboxGone, match="stopping"):
        await follower.receive()
    keeper = await Keeper.connect(container.run_dir)
    table = container.table(keeper)
    table.adopt()
    adopted = table.by_tag("left")
    await adopted.write(b"still here\n", terminal=False)
    await read_until(adopted.follow(), b"still here\n")
    adopted.signal(signal.SIGKILL)
    await keeper.close()


async def test_command__commands_survive_a_keeper_crash_without_their_status(
    container, keeper, table
):
    survivor = await table.start(bash("read; echo alive", stdin=True))
    follower = survivor.follow()
    os.kill(keeper_pid(container.run_dir), signal.SIGKILL)
    await eventually(lambda: keeper._link is None)
    assert await run(table, bash("echo new")) == (b"new\n", FINE)
    await survivor.write(b"\n", terminal=False)
    async with asyncio.timeout(5):
        outputs, ended = await follow_to_end(follower)
    assert outputs == [Output(Stream.STDOUT, b"alive\n")]
    assert (ended.exited, ended.error) == (False, "the exit status was lost")
