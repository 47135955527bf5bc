"""Pauses that keep the files and end the processes."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from e2b import AsyncSandbox, CommandExitException, SandboxState, TimeoutException
from e2b.sandbox.sandbox_api import SandboxOnTimeoutPause

from tests.engine.engine_process import host_pid, running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

SLEEPERS = "pgrep -c -f 'sleep 100[0]'"


async def test_filesystem_pause__keeps_files_and_ends_processes(sandbox, options):
    await sandbox.commands.run("sleep 1000", background=True, timeout=0)
    await sandbox.commands.run("echo unsynced > kept; ln kept link; mkfifo pipe")
    assert await sandbox.pause(mode="filesystem")
    assert not await sandbox.pause(mode="filesystem")
    assert (await sandbox.get_info()).state is SandboxState.PAUSED
    assert not await sandbox.is_running()

    again = await sandbox.connect(timeout=60)
    assert await again.files.read("link") == "unsynced\n"
    assert await _sleepers(again) == 0
    assert (await again.commands.run("test -p pipe && stat -c %h kept")).stdout == "2\n"


async def test_filesystem_pause__command_learns_the_reason(sandbox):
    command = await sandbox.commands.run("echo up; sleep 1000", background=True, timeout=0)
    await sandbox.pause(mode="filesystem")
    with pytest.raises(TimeoutException):  # what the SDK makes of a paused sandbox
        await command.wait()


async def test_filesystem_pause__memory_pause_can_be_rebooted(sandbox):
    await sandbox.commands.run("sleep 1000", background=True, timeout=0)
    await sandbox.files.write("kept", "text")
    await sandbox.pause()
    again = await sandbox.connect(timeout=60, on_resume="reboot")
    assert await _sleepers(again) == 0
    assert await again.files.read("kept") == "text"


async def test_filesystem_pause__reboot_of_a_running_sandbox_changes_nothing(sandbox):
    await sandbox.commands.run("sleep 1000", background=True, timeout=0)
    again = await sandbox.connect(timeout=60, on_resume="reboot")
    assert await _sleepers(again) == 1


async def test_filesystem_pause__happens_at_the_deadline_if_configured(options):
    without_memory = SandboxOnTimeoutPause(action="pause", mode="filesystem")
    sandbox = await AsyncSandbox.create(
        timeout=60, lifecycle={"on_timeout": without_memory}, **options
    )
    try:
        await sandbox.commands.run("sleep 1000", background=True, timeout=0)
        await sandbox.set_timeout(0)

        async def is_paused():
            return (await sandbox.get_info()).state is SandboxState.PAUSED

        await until(is_paused, timeout=60)
        again = await sandbox.connect(timeout=60)
        assert await _sleepers(again) == 0
    finally:
        await sandbox.kill()


async def test_filesystem_pause__busy_disk_is_not_mounted_twice(engine, sandbox):
    await sandbox.files.write("kept", "text")
    root = Path(f"/proc/{host_pid(engine, sandbox)}/root")
    with (root / "home/user/kept").open():
        await sandbox.pause(mode="filesystem")
        connecting = asyncio.create_task(sandbox.connect(timeout=60))
        await asyncio.wait([connecting], timeout=0.5)
        assert not connecting.done()
    again = await connecting
    assert await again.files.read("kept") == "text"


async def test_filesystem_pause__boot_id_changes(sandbox, neighbour):
    async def boot_id(of):
        return (await of.commands.run("cat /proc/sys/kernel/random/boot_id")).stdout

    first = await boot_id(sandbox)
    await sandbox.pause()
    await sandbox.connect(timeout=60)
    assert await boot_id(sandbox) == first
    await sandbox.pause(mode="filesystem")
    await sandbox.connect(timeout=60)
    hosts = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert len({hosts, first, await boot_id(sandbox), await boot_id(neighbour)}) == 4
    assert str(UUID(first.strip())) == first.strip()
    with pytest.raises(CommandExitException):
        await sandbox.commands.run("echo x > /proc/sys/kernel/random/boot_id", user="root")


async def test_filesystem_pause__survives_an_engine_restart():
    with running_engine("--pool-size", "0") as engine:
        sandbox = await AsyncSandbox.create(timeout=300, **engine.options)
        await sandbox.files.write("kept", "text")
        await sandbox.pause(mode="filesystem")
        await engine.restart()
        assert (await sandbox.get_info()).state is SandboxState.PAUSED
        again = await sandbox.connect(timeout=60)
        assert await again.files.read("kept") == "text"


async def _sleepers(sandbox):
    return int((await sandbox.commands.run(f"{SLEEPERS} || true")).stdout)
