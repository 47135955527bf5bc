import pytest

from sandbox_client.errors import (
    CommandFailed,
    CommandNotFound,
    CommandNotRunning,
    CommandNotStarted,
    StdinClosed,
)
from sandbox_client.events import CommandExit, CommandOutput, CommandStarted
from sandbox_client.models import CommandState

pytestmark = pytest.mark.needs_engine


async def test_run__waits_until_the_command_ends(sandbox):
    done = await sandbox.run("echo $WHO; pwd; echo no >&2; exit 3", cwd="/tmp", envs={"WHO": "me"})
    assert (done.stdout, done.stderr, done.exit_code) == ("me\n/tmp\n", "no\n", 3)


async def test_run__check_raises_unless_the_exit_code_is_0(sandbox):
    assert (await sandbox.run("echo fine", check=True)).stdout == "fine\n"
    with pytest.raises(CommandFailed, match="exited with 7: echo why >&2; exit 7\nwhy") as failed:
        await sandbox.run("echo why >&2; exit 7", check=True)
    assert failed.value.outcome.exit_code == 7
    with pytest.raises(CommandFailed, match="timed_out"):
        await sandbox.run("sleep 60", check=True, timeout_s=1)


async def test_run__callbacks_receive_output_as_it_arrives(sandbox):
    stdout: list[str] = []
    stderr: list[str] = []
    cmd = "echo one; while ! test -e /tmp/go-on; do sleep 0.01; done; echo two >&2; rm /tmp/go-on"
    async for event in sandbox.stream(cmd):
        if isinstance(event, CommandOutput) and event.type == "stdout":
            assert event.content == b"one\n"
            await sandbox.files.write("/tmp/go-on", "")
    done = await sandbox.run(
        "printf a; printf b >&2", on_stdout=stdout.append, on_stderr=stderr.append, check=True
    )
    assert ("".join(stdout), "".join(stderr)) == ("a", "b")
    assert (done.stdout, done.stderr) == ("a", "b")


async def test_command__failed_start_raises_from_every_method(sandbox):
    with pytest.raises(CommandNotStarted):
        await sandbox.run("true", cwd="/nowhere")
    with pytest.raises(CommandNotStarted):
        await sandbox.run("true", cwd="/nowhere", on_stdout=print)
    with pytest.raises(CommandNotStarted):
        await sandbox.start("true", cwd="/nowhere")


async def test_command__stream_resumes_after_any_event(sandbox):
    told = [event async for event in sandbox.stream("for i in 1 2 3; do echo $i; sleep 0.05; done")]
    assert isinstance(told[0], CommandStarted)
    assert isinstance(told[-1], CommandExit)
    assert (told[-1].state, told[-1].exit_code) == (CommandState.EXITED, 0)
    assert "".join(e.decoded for e in told if isinstance(e, CommandOutput)) == "1\n2\n3\n"
    command = await sandbox.get_command(told[0].command_id)
    assert [event async for event in command.follow()] == told
    assert [event async for event in command.follow(after=told[1].id)] == told[2:]
    assert [event async for event in command.follow(after=told[-1].id)] == []


async def test_command__stdin_arrives_unchanged(sandbox):
    command = await sandbox.start("cat >/tmp/typed; md5sum </tmp/typed", stdin=True)
    content = bytes(range(256)) * 4096
    await command.send(content)
    await command.send("ü", end=True)
    done = await command.wait()
    assert done.exit_code == 0
    assert await sandbox.files.read("/tmp/typed") == content + "ü".encode()
    with pytest.raises(CommandNotRunning):
        await command.send("late")


async def test_command__binary_output_is_returned_as_bytes(sandbox):
    told = [event async for event in sandbox.stream(r"printf '\377\376ok'")]
    [piece] = [event for event in told if isinstance(event, CommandOutput)]
    assert (piece.content, piece.decoded) == (b"\xff\xfeok", "\ufffd\ufffdok")


async def test_command__background_command_can_be_signalled_and_awaited(sandbox):
    command = await sandbox.start("trap 'echo asked; exit 5' INT; while :; do sleep 0.05; done")
    assert command.record.state is CommandState.RUNNING
    with pytest.raises(StdinClosed):
        await command.send("x")
    await command.signal("SIGINT")
    done = await command.wait()
    assert (done.exit_code, done.stdout) == (5, "asked\n")
    part = await command.read_output(offset=2, limit=3)
    assert [piece.text for piece in part.items] == ["ked"]
    assert await command.wait() == done


async def test_auto_resume__command_resumes_a_paused_sandbox(client):
    async with await client.create_sandbox(template="base") as sandbox:
        await sandbox.pause()
        told: list[str] = []
        await sandbox.run("echo woken", on_stdout=told.append)
        assert told == ["woken\n"]


async def test_command__unknown_id_raises_command_not_found(sandbox):
    with pytest.raises(CommandNotFound):
        await sandbox.get_command("0" * 20)
