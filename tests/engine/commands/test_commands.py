import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import termios
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox_engine.commands import (
    CommandNotFound,
    Ended,
    InputRefused,
    SandboxGone,
    TerminalSize,
)
from sandbox_engine.commands.spool import Output, Stream
from sandbox_engine.keeper.client import Keeper, LaunchFailed
from tests.engine.bare_container import (
    Container,
    bash,
    descriptors,
    eventually,
    follow_to_end,
    keeper_pid,
    read_until,
    run,
    scratch_dir,
)

pytestmark = pytest.mark.needs_engine

MIB = 1 << 20
FINE = Ended(0, exited=True, status="exit status 0", error=None)
KILLED = Ended(-1, exited=False, status="signal: killed", error="signal: killed")


@pytest.fixture
async def container():
    with scratch_dir() as directory:
        container = Container(directory)
        container.make()
        keeper = await Keeper.connect(container.run_dir)
        await container.start(keeper)
        await keeper.close()
        yield container
        container.remove()


@pytest.fixture
async def keeper(container):
    keeper = await Keeper.connect(container.run_dir)
    yield keeper
    await keeper.close()


@pytest.fixture
async def table(container, keeper):
    table = container.table(keeper)
    yield table
    table.abandon("the test is over")


# Output and endings


async def test_command__output_arrives_per_stream_and_in_order(table):
    command = await table.start(bash("echo one; echo two >&2; sleep 0.1; echo three"))
    outputs, ended = await follow_to_end(command.follow())
    by_stream = {
        stream: b"".join(data for kind, data in outputs if kind is stream)
        for stream in (Stream.STDOUT, Stream.STDERR)
    }
    assert by_stream == {Stream.STDOUT: b"one\nthree\n", Stream.STDERR: b"two\n"}
    assert outputs[-1] == Output(Stream.STDOUT, b"three\n")
    assert ended == FINE


@pytest.mark.parametrize(
    ("script", "code", "status"),
    [
        ("exit 3", 3, "exit status 3"),
        ("kill -TERM $$", -1, "signal: terminated"),
        ("kill -HUP $$", -1, "signal: hangup"),
        ("kill -ABRT $$", -1, "signal: aborted"),
        ("kill -XCPU $$", -1, "signal: CPU time limit exceeded"),
        ("sh -c 'kill -9 $$'; exit $?", 137, "exit status 137"),
    ],
)
async def test_command__every_exit_has_its_code_and_message(table, script, code, status):
    _, ended = await run(table, bash(f"ulimit -c 0; {script}"))
    assert (ended.exit_code, ended.status, ended.error) == (code, status, status)
    assert ended.exited == (code >= 0)


async def test_command__a_megabyte_written_at_the_last_moment_is_not_lost(table):
    output, ended = await run(table, bash("head -c 1000000 /dev/zero"))
    assert (len(output), ended) == (1_000_000, FINE)


async def test_command__runs_as_the_requested_user_in_the_requested_directory(table):
    script = "id -un; pwd; echo $GREETING; echo open > /dev/stdout"
    output, _ = await run(table, bash(script, envs={"GREETING": "hello"}))
    assert output == b"user\n/home/user\nhello\nopen\n"


async def test_command__the_pid_is_the_one_inside_the_sandbox(table):
    command = await table.start(bash("echo $$"))
    (output, *_), _ = await follow_to_end(command.follow())
    assert int(output.data) == command.pid != command.host_pid


async def test_command__background_child_holding_the_output_delays_the_end(table):
    output, ended = await run(table, bash("(sleep 0.3; echo late) & echo early"))
    assert (output, ended) == (b"early\nlate\n", FINE)


async def test_command__background_child_without_the_output_does_not_delay_the_end(table):
    async with asyncio.timeout(5):
        assert await run(table, bash("sleep 60 >/dev/null 2>&1 & echo done")) == (b"done\n", FINE)


async def test_command__killed_command_ends_at_once_with_its_output(table):
    command = await table.start(bash("sleep 60 & head -c 300000 /dev/zero; echo up >&2; wait"))
    follower = command.follow()
    seen = await read_until(follower, b"up\n")
    command.signal(signal.SIGKILL)
    async with asyncio.timeout(5):
        outputs, ended = await follow_to_end(follower)
    assert ended == KILLED
    assert len(seen) + sum(len(output.data) for output in outputs) == 300_003


async def test_command__slow_termination_is_waited_for(table):
    script = "trap 'sleep 0.3; echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done"
    command = await table.start(bash(script))
    follower = command.follow()
    await read_until(follower, b"up\n")
    command.signal(signal.SIGTERM)
    outputs, ended = await follow_to_end(follower)
    assert (outputs[-1].data, ended.exit_code) == (b"bye\n", 4)


async def test_command__kill_ends_a_command_whose_child_outlives_it(table):
    command = await table.start(bash("sleep 60 & echo gone"))
    follower = command.follow()
    await read_until(follower, b"gone\n")
    await command.held.ended
    assert table.by_pid(command.pid) is command
    command.signal(signal.SIGKILL)
    assert (await follow_to_end(follower))[1] == FINE


async def test_command__deadline_kills_a_command_without_followers(table):
    deadline = datetime.now(UTC) + timedelta(seconds=0.3)
    command = await table.start(bash("sleep 60"), deadline=deadline)
    command.follow().close()
    async with asyncio.timeout(5):
        await command.held.ended
    assert (await follow_to_end(command.follow()))[1] == KILLED
    assert datetime.now(UTC) >= deadline


async def test_command__out_of_memory_kill_is_reported(container, table):
    command = await table.start(bash("sleep 60"))
    container.oom_kills += 1
    os.kill(command.host_pid, signal.SIGKILL)
    _, ended = await follow_to_end(command.follow())
    assert ended.status == "signal: killed"
    assert ended.error is not None
    assert "memory limit" in ended.error


async def test_command__failed_start_raises_and_leaves_nothing(container, table):
    before = open_descriptors(container)
    for number in range(5):
        request = bash("true")
        changed = {**request.__dict__, "cmd": f"/no/such/{number}"}
        with pytest.raises(LaunchFailed, match="no such file or directory"):
            await table.start(type(request)(**changed))
    assert table.list() == []
    assert open_descriptors(container) == before
    assert list((container.run_dir / "commands").iterdir()) == []


# Input


async def test_command__input_reaches_the_command_and_ends(table):
    command = await table.start(bash("cat; echo end", stdin=True))
    follower = command.follow()
    await command.write(b"hello\n", terminal=False)
    await read_until(follower, b"hello\n")
    command.close_stdin()
    command.close_stdin()
    outputs, _ = await follow_to_end(follower)
    assert outputs[-1].data == b"end\n"
    with pytest.raises(InputRefused, match="not enabled or closed"):
        await command.write(b"more", terminal=False)


async def test_command__large_input_waits_for_the_reader(table):
    command = await table.start(bash("sleep 0.2; md5sum", stdin=True))
    follower = command.follow()
    half = os.urandom(4 * MIB)
    await asyncio.gather(*(command.write(half, terminal=False) for _ in range(2)))
    command.close_stdin()
    outputs, _ = await follow_to_end(follower)
    expected = hashlib.md5(half * 2).hexdigest()
    assert outputs[0].data.startswith(expected.encode())


async def test_command__waiting_writer_gets_an_error_when_the_command_ends(table):
    command = await table.start(bash("sleep 60", stdin=True))
    writing = asyncio.create_task(command.write(b"x" * 3 * MIB, terminal=False))
    await asyncio.sleep(0)
    command.signal(signal.SIGKILL)
    async with asyncio.timeout(5):
        with pytest.raises(BrokenPipeError):
            await writing


async def test_command__input_is_rejected_without_stdin(table):
    command = await table.start(bash("sleep 60"))
    with pytest.raises(InputRefused, match="not enabled"):
        await command.write(b"x", terminal=False)
    with pytest.raises(InputRefused, match="tty not assigned"):
        await command.write(b"x", terminal=True)
    with pytest.raises(InputRefused, match="tty not assigned"):
        command.resize(TerminalSize(1, 1))
    command.close_stdin()


# Terminals


async def test_command__terminal_size_is_set_at_start_and_changed_later(table):
    script = "trap 'stty size' WINCH; stty size; tty; while :; do sleep 0.05; done"
    command = await table.start(bash(script, terminal=TerminalSize(33, 101)))
    follower = command.follow()
    assert b"33 101\r\n" in await read_until(follower, b"/dev/pts/0\r\n")
    command.resize(TerminalSize(44, 55))
    await read_until(follower, b"44 55\r\n")


async def test_command__terminal_accepts_input_and_control_characters(table):
    command = await table.start(bash("cat; echo over", terminal=TerminalSize(24, 80)))
    follower = command.follow()
    await command.write(b"line\n", terminal=True)
    await read_until(follower, b"line\r\nline\r\n")
    await command.write(b"\x04", terminal=True)
    outputs, ended = await follow_to_end(follower)
    assert outputs[-1] == Output(Stream.PTY, b"over\r\n")
    assert ended == FINE
    with pytest.raises(InputRefused):
        await command.write(b"x", terminal=False)


async def test_command__last_terminal_output_is_not_lost(table):
    for _ in range(20):
        request = bash("seq 2000; echo last", terminal=TerminalSize(24, 80))
        output, _ = await run(table, request)
        assert output.endswith(b"2000\r\nlast\r\n")


async def test_command__terminal_ends_with_its_process_despite_open_children(table):
    script = "trap '' HUP; sleep 60 & echo up"
    async with asyncio.timeout(5):
        output, ended = await run(table, bash(script, terminal=TerminalSize(24, 80)))
    assert (output, ended) == (b"up\r\n", FINE)


async def test_command__terminal_hangup_is_immediate(table):
    script = "exec 0<&- 1>&- 2>&-; exec sleep 60"
    command = await table.start(bash(script, terminal=TerminalSize(24, 80)))
    command.follow()
    before = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - before < 0.1
    command.signal(signal.SIGKILL)
    await command.held.ended


# Followers


async def test_command__late_follower_gets_output_from_then_on(table):
    command = await table.start(bash("echo first; read; echo second", stdin=True))
    first = command.follow()
    await read_until(first, b"first\n")
    second = command.follow()
    await command.write(b"\n", terminal=False)
    assert (await follow_to_end(second))[0] == [Output(Stream.STDOUT, b"second\n")]
    assert (await follow_to_end(first))[0] == [Output(Stream.STDOUT, b"second\n")]


async def test_command__stalled_follower_delays_neither_command_nor_followers(container, table):
    command = await table.start(bash("read; head -c 50000000 /dev/zero; echo end", stdin=True))
    stalled, quick = command.follow(), command.follow()
    await command.write(b"\n", terminal=False)
    async with asyncio.timeout(20):
        outputs, ended = await follow_to_end(quick)
    assert (sum(len(output.data) for output in outputs), ended) == (50_000_004, FINE)
    assert [path.name for path in container.spool_dir.iterdir()] == ["journal"]
    outputs, ended = await follow_to_end(stalled)
    assert (sum(len(output.data) for output in outputs), ended) == (50_000_004, FINE)


async def test_command__followers_are_optional(table):
    command = await table.start(bash("head -c 50000000 /dev/zero"))
    command.follow().close()
    await eventually(lambda: command.ended is not None)
    assert (await follow_to_end(command.follow())) == ([], FINE)


async def test_command__ended_command_can_be_recalled_but_not_used(table):
    command = await table.start(bash("echo unheard", tag="job"))
    assert table.by_tag("job") is table.by_pid(command.pid) is command
    await follow_to_end(command.follow())
    assert table.list() == []
    assert table.recall_by_pid(command.pid) is table.recall_by_tag("job") is command
    assert await follow_to_end(command.follow()) == ([], FINE)
    with pytest.raises(CommandNotFound, match=f"process with pid {command.pid} not found"):
        table.by_pid(command.pid)
    with pytest.raises(CommandNotFound, match="process with tag job not found"):
        table.by_tag("job")


async def test_command__cancelled_start_leaves_a_command_that_can_be_found(table):
    starting = asyncio.create_task(table.start(bash("echo out; sleep 60", tag="orphan")))
    await asyncio.sleep(0)
    starting.cancel()
    await eventually(lambda: len(table.list()) == 1)
    follower = table.by_tag("orphan").follow()
    assert await read_until(follower, b"out\n") == b"out\n"


# The sandbox's end


async def test_command__detach_disconnects_followers_and_keeps_commands(table):
    command = await table.start(bash("read; echo on", stdin=True))
    follower = command.follow()
    table.detach("it was paused")
    with pytest.raises(SandboxGone, match="it was paused"):
        await follower.receive()
    again = table.by_pid(command.pid).follow()
    await command.write(b"\n", terminal=False)
    await read_until(again, b"on\n")


async def test_command__abandoned_table_leaves_nothing(container, keeper, table):
    before = open_descriptors(container)
    commands = [await table.start(bash("sleep 60", stdin=True)) for _ in range(3)]
    followers = [command.follow() for command in commands]
    table.abandon("it was killed")
    for follower in followers:
        with pytest.raises(SandboxGone, match="it was killed"):
            await follower.receive()
    assert list((container.run_dir / "commands").iterdir()) == []
    await keeper.run(["true"])
    assert open_descriptors(container) == before
    with pytest.raises(SandboxGone):
        await table.start(bash("true"))


# Restarts


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
    counting = "seq 1 400000 | tee /tmp/seen; echo finished"
    await crash_engine(container, {"script": f"echo up; {counting}", "tag": "count"})
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


# Many


async def test_command__outputs_of_concurrent_commands_do_not_mix(table):
    async def echo(number):
        return number, await run(table, bash(f"echo {number}; exit {number}"))

    for number, (output, ended) in await asyncio.gather(*(echo(n) for n in range(40))):
        assert (output, ended.exit_code) == (b"%d\n" % number, number)


async def test_command__hundreds_of_short_commands_leave_nothing_behind(container, keeper, table):
    await run(table, bash("true"))
    await keeper.run(["true"])  # by then it has forgotten the command
    before = open_descriptors(container), len(asyncio.all_tasks())
    for _ in range(15):
        results = await asyncio.gather(*(run(table, bash("echo x")) for _ in range(20)))
        assert set(results) == {(b"x\n", FINE)}
    await keeper.run(["true"])
    assert (open_descriptors(container), len(asyncio.all_tasks())) == before
    assert list((container.run_dir / "commands").iterdir()) == []
    assert table.list() == []


async def rest(command):
    """Read what of a command's output is still to come, up to its good end."""
    outputs, ended = await follow_to_end(command.follow())
    assert ended == FINE
    return b"".join(output.data for output in outputs)


async def processes_gone(container, text):
    """Wait until no process of the container has this text in its command line."""
    await eventually(lambda: not any(text in line for line in command_lines(container)))


def command_lines(container):
    init = (container.directory / "init.pid").read_text()
    namespace = Path(f"/proc/{init}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it is gone, or not to be looked into
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                yield (entry / "cmdline").read_bytes()


def waiting_in_pipe(command):
    answer = fcntl.ioctl(command.held.descriptors["stdout"], termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def open_descriptors(container):
    """Count what we and the keeper have open."""
    pids = (os.getpid(), keeper_pid(container.run_dir))
    return [len(descriptors(pid)) for pid in pids]
