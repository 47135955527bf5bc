import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_engine.commands import (
    SandboxGone,
)
from sandbox_engine.commands.spool import Output, Stream
from sandbox_engine.keeper.client import LaunchFailed
from tests.engine.bare_container import (
    bash,
    follow_to_end,
    read_until,
    run,
)
from tests.engine.commands.command_observers import (
    FINE,
    KILLED,
    open_descriptors,
)

pytestmark = pytest.mark.needs_engine


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


async def test_command__outputs_of_concurrent_commands_do_not_mix(table):
    async def echo(number):
        return number, await run(table, bash(f"echo {number}; exit {number}"))

    for number, (output, ended) in await asyncio.gather(*(echo(n) for n in range(40))):
        assert (output, ended.exit_code) == (b"%d\n" % number, number)


@pytest.mark.slow  # hundreds of commands
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
