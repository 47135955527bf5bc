import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    PtySize,
    SandboxException,
    SandboxNotFoundException,
    SandboxState,
    TimeoutException,
)

from tests.engine import leftovers
from tests.engine.engine_process import host_pid, running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture(scope="module")
def mortal_engine():
    """Run an engine that tests may kill."""
    with running_engine("--pool-size", "4") as engine:
        yield engine


@pytest.fixture
async def survivor(mortal_engine):
    """Create a sandbox in the engine that is going to be killed."""
    sandbox = await AsyncSandbox.create(timeout=300, **mortal_engine.options)
    yield sandbox
    with contextlib.suppress(SandboxException):
        await sandbox.kill()


async def test_engine_restart__running_sandbox_answers_after_a_crash(mortal_engine, survivor):
    await survivor.files.write("before", "kept")
    await mortal_engine.restart()
    assert (await survivor.commands.run("cat before; echo; id -un")).stdout == "kept\nuser\n"
    assert (await survivor.get_info()).state is SandboxState.RUNNING


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__background_output_is_complete_after_a_crash(mortal_engine, survivor):
    script = "i=0; while [ ! -e stop ]; do echo $i; i=$((i+1)); sleep 0.001; done; echo $i > count"
    heard: list[str] = []
    command = await survivor.commands.run(
        script, background=True, timeout=0, on_stdout=heard.append
    )
    await until(lambda: _is(len(heard) > 20))
    mortal_engine.kill()
    await asyncio.to_thread(mortal_engine.start)
    with pytest.raises(TimeoutException):
        await command.wait()
    last = int("".join(heard).split("\n")[-2])

    again = await survivor.commands.connect(command.pid, timeout=30)
    await survivor.files.write("stop", "")
    result = await again.wait()
    numbers = [int(line) for line in result.stdout.split()]
    written = int(await survivor.files.read("count"))
    assert numbers == list(range(numbers[0], written))
    assert numbers[0] - last < 20  # what was between the dead engine and its client is gone


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__exit_status_during_downtime_is_known(mortal_engine, survivor):
    command = await survivor.commands.run(
        "while [ ! -e go ]; do sleep 0.01; done; exit 7", background=True, timeout=0
    )
    root = Path(f"/proc/{host_pid(mortal_engine, survivor)}/root")
    mortal_engine.kill()
    (root / "home/user/go").touch()
    await asyncio.to_thread(mortal_engine.start)
    again = await survivor.commands.connect(command.pid)
    with pytest.raises(CommandExitException) as caught:
        await again.wait()
    assert caught.value.exit_code == 7


async def test_engine_restart__terminal_survives_a_crash(mortal_engine, survivor):
    seen = bytearray()
    terminal = await survivor.pty.create(PtySize(24, 80), on_data=seen.extend, timeout=0)
    await survivor.pty.send_stdin(terminal.pid, b"word=kept\n")
    await until(lambda: _is(b"word=kept" in seen))
    await mortal_engine.restart()
    again = await survivor.pty.connect(terminal.pid, on_data=seen.extend, timeout=30)
    await survivor.pty.resize(terminal.pid, PtySize(31, 97))
    await survivor.pty.send_stdin(terminal.pid, b"echo $word-$(stty size)\n")
    await until(lambda: _is(b"kept-31 97" in seen))
    await survivor.pty.kill(terminal.pid)
    await again.disconnect()


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__deadline_passed_during_downtime_is_enforced(mortal_engine):
    doomed = await AsyncSandbox.create(timeout=2, **mortal_engine.options)
    resting = await AsyncSandbox.create(
        timeout=2, lifecycle={"on_timeout": "pause"}, **mortal_engine.options
    )
    mortal_engine.kill()
    await asyncio.sleep(2)
    await asyncio.to_thread(mortal_engine.start)

    async def is_gone():
        with contextlib.suppress(SandboxNotFoundException):
            await doomed.get_info()
            return False
        return True

    async def is_paused():
        return (await resting.get_info()).state is SandboxState.PAUSED

    await until(is_gone)
    await until(is_paused)
    await resting.kill()


async def test_engine_restart__envd_answers_inside_unless_its_port_was_taken(
    mortal_engine, survivor
):
    ask = "curl -s -o /dev/null -w '%{http_code}' http://localhost:49983/health; true"
    await mortal_engine.restart()
    assert (await survivor.commands.run(ask)).stdout == "204"
    mortal_engine.kill()
    with _port_taken(host_pid(mortal_engine, survivor), 49983):
        await asyncio.to_thread(mortal_engine.start)
        assert (await survivor.commands.run(ask)).stdout == "404"
    assert "envd is not reachable inside" in mortal_engine.log


@contextlib.contextmanager
def _port_taken(pid, port):
    taker = ["nsenter", "-t", str(pid), "-n", sys.executable, "-u", "-m", "http.server", str(port)]
    with subprocess.Popen(taker, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout
        assert b"Serving" in server.stdout.readline()
        yield
        server.kill()


async def test_engine_restart__paused_sandbox_keeps_its_memory(mortal_engine, survivor):
    await survivor.commands.run("sleep 1000", background=True, timeout=0)
    await survivor.pause()
    await mortal_engine.restart()
    assert (await survivor.get_info()).state is SandboxState.PAUSED
    await survivor.connect(timeout=60)
    assert "sleep 1000" in (await survivor.commands.run("ps ax")).stdout


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__dead_processes_resume_from_files(mortal_engine, survivor):
    await survivor.files.write("kept", "on disk")
    pid = host_pid(mortal_engine, survivor)
    mortal_engine.kill()
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(mortal_engine.start)
    assert (await survivor.get_info()).state is SandboxState.PAUSED
    await survivor.connect(timeout=60)
    assert await survivor.files.read("kept") == "on disk"
    assert (await survivor.commands.run("echo up")).stdout == "up\n"


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__links_lost_in_a_reboot_do_not_collide(mortal_engine):
    await mortal_engine.restart()  # numbers are given out from the lowest again
    sandbox = await AsyncSandbox.create(timeout=300, **mortal_engine.options)
    record = json.loads(
        (mortal_engine.state_dir / "sandboxes" / sandbox.sandbox_id / "record.json").read_text()
    )
    mortal_engine.kill()
    os.kill(record["init"]["pid"], signal.SIGKILL)
    _remove_link(record["link"])
    await asyncio.to_thread(mortal_engine.start)

    created = await asyncio.gather(
        *(AsyncSandbox.create(timeout=120, **mortal_engine.options) for _ in range(4))
    )
    await sandbox.connect(timeout=60)
    for one in (sandbox, *created):
        assert (await one.commands.run("echo up")).stdout == "up\n"
        await one.kill()


def _remove_link(link):
    for place in (link["netns"], f"{link['netns']}.user"):
        subprocess.run(["umount", place], check=True)
        Path(place).unlink()
    subprocess.run(["ip", "link", "delete", link["name"]], check=False, capture_output=True)


async def test_engine_restart__graceful_stop_keeps_sandboxes_running(mortal_engine, survivor):
    assert mortal_engine.stop() == 0
    await asyncio.to_thread(mortal_engine.start)
    assert (await survivor.commands.run("echo still")).stdout == "still\n"


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_engine_restart__dead_sandboxes_leave_nothing_after_300_cycles(mortal_engine):
    before = await leftovers.settled(mortal_engine)

    async def cycle():
        sandbox = await AsyncSandbox.create(timeout=60, **mortal_engine.options)
        assert (await sandbox.commands.run("echo x")).stdout == "x\n"
        await sandbox.kill()

    async def cycles(number):
        for _ in range(number):
            await cycle()

    await asyncio.gather(*(cycles(75) for _ in range(4)))
    await leftovers.back_to(mortal_engine, before)


@pytest.mark.timeout(120)
@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__crash_during_creates_leaves_nothing(
    mortal_engine,
):
    before = await leftovers.settled(mortal_engine)
    for delay in (0.02, 0.06, 0.12):
        creating = [
            asyncio.create_task(AsyncSandbox.create(timeout=1, retries=0, **mortal_engine.options))
            for _ in range(10)
        ]
        await asyncio.sleep(delay)
        mortal_engine.kill()
        await asyncio.gather(*creating, return_exceptions=True)
        await asyncio.to_thread(mortal_engine.start)

    async def is_empty():
        listed = await AsyncSandbox.list(**mortal_engine.options).next_items()
        return not listed

    await until(is_empty)
    await leftovers.back_to(mortal_engine, before)


async def test_engine_restart__state_directory_is_exclusive(mortal_engine):
    second = await asyncio.create_subprocess_exec(
        *mortal_engine.command("serve"), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await second.communicate()
    assert second.returncode == 78
    assert b"another engine uses" in said


async def _is(condition):
    return condition


@pytest.mark.slow  # a crash needs an engine of its own
async def test_engine_restart__foreign_mount_namespace_is_reported(mortal_engine, survivor):
    mortal_engine.stop()
    elsewhere = await asyncio.create_subprocess_exec(
        "unshare", "--mount", *mortal_engine.command("serve"), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await elsewhere.communicate()
    await asyncio.to_thread(mortal_engine.start)
    assert elsewhere.returncode == 78
    assert b"another mount namespace" in said
    assert (await survivor.commands.run("echo still")).stdout == "still\n"
