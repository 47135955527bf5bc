import asyncio
import hashlib
import random
import time

import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    NotFoundException,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
)

from tests.engine.output_collector import Heard
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

SOME_MEGABYTES = random.Random(5).randbytes(3 << 20).hex()


# In the background


async def test_running_command__background_command_returns_at_once(sandbox):
    command = await sandbox.commands.run(
        "until [ -e go ]; do sleep 0.01; done; echo done; exit 5", background=True
    )
    assert command.exit_code is None
    await sandbox.files.write("go", "")
    with pytest.raises(CommandExitException) as caught:
        await command.wait()
    assert (caught.value.exit_code, caught.value.stdout) == (5, "done\n")
    assert command.exit_code == 5


async def test_running_command__list_shows_the_start_parameters(sandbox):
    assert await sandbox.commands.list() == []
    one = await sandbox.commands.run("sleep 600", background=True, envs={"A": "b"}, cwd="/tmp")
    two = await sandbox.commands.run("sleep 601", background=True, user="root")
    listed = {process.pid: process for process in await sandbox.commands.list()}
    assert listed.keys() == {one.pid, two.pid}
    assert (listed[one.pid].cmd, listed[one.pid].args) == ("/bin/bash", ["-l", "-c", "sleep 600"])
    assert (listed[one.pid].envs, listed[one.pid].cwd) == ({"A": "b"}, "/tmp")
    assert (listed[two.pid].args[-1], listed[two.pid].tag) == ("sleep 601", None)
    await two.kill()
    await until(lambda: _lists_only(sandbox, one))


async def test_running_command__pid_is_the_one_inside_the_sandbox(shared):
    command = await shared.commands.run("sleep 600", background=True)
    seen = await shared.commands.run(f"tr '\\0' ' ' < /proc/{command.pid}/cmdline")
    assert seen.stdout == "sleep 600 "
    await command.kill()


# Connecting


async def test_running_command__connect_streams_output_from_then_on(sandbox):
    first, second = Heard(), Heard()
    script = "echo before; for step in one two; do until [ -e $step ]; do sleep 0.01; done; echo $step; done"
    command = await sandbox.commands.run(script, background=True, on_stdout=first)
    await first.wait_for(b"before\n")
    again = await sandbox.commands.connect(command.pid, on_stdout=second)
    assert again.pid == command.pid
    await sandbox.files.write("one", "")
    for heard in (first, second):
        await heard.wait_for(b"one\n")
    await command.disconnect()
    await sandbox.files.write("two", "")
    assert (await again.wait()).stdout == second.data.decode() == "one\ntwo\n"
    assert first.data == b"before\none\n"


async def test_running_command__continues_without_followers(shared):
    command = await shared.commands.run(
        "for i in $(seq 30000); do echo line $i; done; sleep 600", background=True
    )
    await command.disconnect()
    again = await shared.commands.connect(command.pid)
    assert await again.kill()
    with pytest.raises(CommandExitException) as caught:
        await again.wait()
    assert caught.value.error == "signal: killed"


async def test_running_command__connect_to_an_ended_command_returns_its_result(shared):
    command = await shared.commands.run("exit 9", background=True)
    with pytest.raises(CommandExitException):
        await command.wait()
    again = await shared.commands.connect(command.pid)
    with pytest.raises(CommandExitException) as caught:
        await again.wait()
    assert caught.value.exit_code == 9


async def test_running_command__unknown_pid_is_not_found(shared):
    for pid in (1, 99_999, 0, 2**32 - 1):
        with pytest.raises(NotFoundException, match=f"process with pid {pid} not found"):
            await shared.commands.connect(pid)
        with pytest.raises(NotFoundException):
            await shared.commands.send_stdin(pid, "x")
        assert not await shared.commands.kill(pid)


# Killing and timeouts


async def test_running_command__killed_command_ends_with_its_output(shared):
    heard = Heard()
    command = await shared.commands.run(
        "trap '' TERM; sleep 600 & echo up; wait", background=True, on_stdout=heard
    )
    await heard.wait_for(b"up\n")
    assert await command.kill()
    async with asyncio.timeout(5):
        with pytest.raises(CommandExitException) as caught:
            await command.wait()
    assert (caught.value.exit_code, caught.value.error) == (-1, "signal: killed")
    assert caught.value.stdout == "up\n"
    assert not await command.kill()


async def test_running_command__timeout_kills(shared):
    heard = Heard()
    started = time.monotonic()
    command = await shared.commands.run(
        "echo $$; exec sleep 600", background=True, timeout=0.5, on_stdout=heard
    )
    with pytest.raises(TimeoutException):
        await command.wait()
    assert 0.4 < time.monotonic() - started < 5
    await until(lambda: _is_dead(shared, int(heard.data)))
    assert command.pid not in [one.pid for one in await shared.commands.list()]


async def test_running_command__timeout_kills_without_followers(shared):
    command = await shared.commands.run("sleep 600", background=True, timeout=0.5)
    await command.disconnect()
    await until(lambda: _is_dead(shared, command.pid))


async def test_running_command__follower_timeout_does_not_kill(shared):
    command = await shared.commands.run("sleep 600", background=True, timeout=0)
    again = await shared.commands.connect(command.pid, timeout=0.3)
    with pytest.raises(TimeoutException):
        await again.wait()
    assert not await _is_dead(shared, command.pid)
    await command.kill()


# Input


async def test_running_command__input_is_read_until_its_end(shared):
    command = await shared.commands.run("cat; echo end", background=True, stdin=True)
    await command.send_stdin("first\n")
    await command.send_stdin("é second".encode())
    await command.close_stdin()
    assert (await command.wait()).stdout == "first\né secondend\n"


async def test_running_command__command_without_input_reads_eof(shared):
    assert (await shared.commands.run("cat; echo end")).stdout == "end\n"
    command = await shared.commands.run("sleep 600", background=True)
    with pytest.raises(SandboxException, match="stdin not enabled or closed"):
        await command.send_stdin("x")
    await command.close_stdin()
    await command.close_stdin()
    await command.kill()


async def test_running_command__megabytes_of_input_arrive_in_order(shared):
    command = await shared.commands.run("sleep 0.3; sha256sum", background=True, stdin=True)
    for start in range(0, len(SOME_MEGABYTES), 1 << 20):
        await command.send_stdin(SOME_MEGABYTES[start : start + (1 << 20)])
    await command.close_stdin()
    expected = hashlib.sha256(SOME_MEGABYTES.encode()).hexdigest()
    assert (await command.wait()).stdout == f"{expected}  -\n"


async def test_running_command__input_stream_keeps_its_order(shared):
    command = await shared.commands.run("sha256sum", background=True, stdin=True)
    stream = shared.commands.stream_input(command.pid)
    for start in range(0, len(SOME_MEGABYTES), 10_000):
        await stream.send(SOME_MEGABYTES[start : start + 10_000])
    await stream.close()
    await command.close_stdin()
    expected = hashlib.sha256(SOME_MEGABYTES.encode()).hexdigest()
    assert (await command.wait()).stdout == f"{expected}  -\n"


async def test_running_command__input_to_a_closed_stdin_is_an_error(shared):
    command = await shared.commands.run(
        "exec 0<&-; echo closed; sleep 600",
        background=True,
        stdin=True,
        on_stdout=(heard := Heard()),
    )
    await heard.wait_for(b"closed\n")
    with pytest.raises(SandboxException, match="broken pipe"):
        await command.send_stdin("x")
    await command.kill()


# Children


async def test_running_command__background_child_with_own_output_delays_nothing(shared):
    async with asyncio.timeout(5):
        result = await shared.commands.run("nohup sleep 600 > /dev/null 2>&1 & echo $!")
    child = int(result.stdout)
    assert not await _is_dead(shared, child)
    await shared.commands.run(f"kill {child}")
    await until(lambda: _is_dead(shared, child))


async def test_running_command__background_child_with_shared_output_is_waited_for(shared):
    result = await shared.commands.run("(sleep 0.3; echo late) & echo early")
    assert result.stdout == "early\nlate\n"


async def test_running_command__orphans_are_reaped(shared):
    await shared.commands.run("for i in $(seq 50); do (sleep 0.01 &) ; done")

    async def nothing_is_left():
        seen = await shared.commands.run("ps -eo stat,args | grep -E '^Z|sleep 0.01$' || true")
        return seen.stdout == ""

    await until(nothing_is_left)


# A sandbox that stops


async def test_running_command__killed_sandbox_is_reported(options):
    sandbox = await AsyncSandbox.create(timeout=60, **options)
    heard = Heard()
    running = [
        asyncio.create_task(sandbox.commands.run("echo up; sleep 600", on_stdout=heard)),
        asyncio.create_task(sandbox.commands.run("cat", stdin=True, timeout=0)),
    ]
    await heard.wait_for(b"up\n")
    await until(lambda: _lists(sandbox, 2))
    started = time.monotonic()
    await sandbox.kill()
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert [type(end) for end in ends] == [SandboxNotRunningException] * 2
    assert time.monotonic() - started < 3


async def test_running_command__sandbox_timeout_is_reported(options):
    sandbox = await AsyncSandbox.create(timeout=2, **options)
    with pytest.raises(SandboxNotRunningException):
        await sandbox.commands.run("sleep 600")


async def test_running_command__survives_a_pause_and_reconnect(sandbox):
    command = await sandbox.commands.run(
        "until [ -e go ]; do sleep 0.01; done; echo done", background=True, timeout=0
    )
    await sandbox.pause()
    with pytest.raises(SandboxNotRunningException):
        await command.wait()
    await sandbox.connect(timeout=60)
    again = await sandbox.commands.connect(command.pid)
    await sandbox.files.write("go", "")
    assert (await again.wait()).stdout == "done\n"


async def _is_dead(sandbox, pid):
    seen = await sandbox.commands.run(f"[ -d /proc/{pid} ]; echo $?", user="root")
    return seen.stdout == "1\n"


async def _lists(sandbox, count):
    return len(await sandbox.commands.list()) == count


async def _lists_only(sandbox, command):
    return [one.pid for one in await sandbox.commands.list()] == [command.pid]
