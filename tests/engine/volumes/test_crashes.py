"""Volumes through crashes of the engine and of the machine, and what is left of them."""

import asyncio
import contextlib
import os
import signal
import subprocess

import httpx
import pytest
from e2b import AsyncSandbox, AsyncVolume, SandboxException, VolumeNotFoundException

from sandbox_engine.system import loop_devices
from tests.engine import leftovers
from tests.engine.engine_process import host_pid
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def survivor(small_volume, small_options):
    """Create a sandbox with the volume in it, in the engine that is going to be killed."""
    sandbox = await AsyncSandbox.create(
        timeout=600, volume_mounts={"/mnt/data": small_volume}, **small_options
    )
    yield sandbox
    with contextlib.suppress(SandboxException):
        await sandbox.kill()


def place_of(engine, volume):
    return engine.state_dir / "volumes" / volume.volume_id


def is_mounted(engine, volume):
    return os.path.ismount(place_of(engine, volume) / "content")


async def unmounted(engine, volume):
    """Wait: whoever has an answer may still be about to leave."""
    await until(lambda: _is(not is_mounted(engine, volume)), timeout=60)


async def _is(condition):
    return condition


async def test_volume__survives_an_engine_crash(
    small_engine, small_volume, small_options, survivor
):
    await survivor.commands.run("echo kept > /mnt/data/file")
    await small_engine.restart()
    again = await AsyncVolume.connect(small_volume.volume_id, **small_options)
    assert (again.name, again.token) == (small_volume.name, small_volume.token)
    assert await small_volume.read_file("/file") == "kept\n"
    await small_volume.write_file("/other", "too")
    assert (await survivor.commands.run("cat /mnt/data/other")).stdout == "too"


async def test_volume__is_unmounted_with_its_last_sandbox(
    small_engine, small_volume, small_options, survivor
):
    other = await AsyncSandbox.create(
        timeout=600, volume_mounts={"/x": small_volume}, **small_options
    )
    await small_engine.restart()
    await survivor.kill()
    await small_volume.write_file("/file", "x")
    assert is_mounted(small_engine, small_volume)
    await other.kill()
    await unmounted(small_engine, small_volume)
    assert await small_volume.read_file("/file") == "x"
    await unmounted(small_engine, small_volume)


@pytest.mark.slow  # a crash needs an engine of its own
async def test_volume__is_mounted_again_after_a_reboot(small_engine, small_volume, survivor):
    await survivor.commands.run("echo kept > /mnt/data/file && sync /mnt/data/file")
    root = f"/run/sandbox-engine/{small_engine.instance}/roots/{survivor.sandbox_id}"
    small_engine.kill()
    os.kill(host_pid(small_engine, survivor), signal.SIGKILL)
    for mounted in (root, place_of(small_engine, small_volume) / "content"):
        await asyncio.to_thread(subprocess.run, ["umount", "--lazy", mounted], check=True)
    await asyncio.to_thread(small_engine.start)
    again = await survivor.connect(timeout=120)
    assert (await again.commands.run("cat /mnt/data/file")).stdout == "kept\n"


@pytest.mark.slow  # a crash needs an engine of its own
async def test_volume__reset_keeps_volumes(small_engine, small_volume, survivor):
    await survivor.commands.run("echo kept > /mnt/data/file")
    small_engine.stop()
    await asyncio.to_thread(
        subprocess.run, small_engine.command("reset"), check=True, timeout=120, capture_output=True
    )
    assert not is_mounted(small_engine, small_volume)
    await asyncio.to_thread(small_engine.start)
    assert await small_volume.read_file("/file") == "kept\n"


@pytest.mark.slow  # a crash needs an engine of its own
async def test_volume__destroyed_volume_stays_for_its_sandboxes(
    small_engine, small_volume, small_options, survivor
):
    await survivor.commands.run("echo kept > /mnt/data/file")
    assert await AsyncVolume.destroy(small_volume.volume_id, **small_options)
    assert await AsyncVolume.list(**small_options) == []
    with pytest.raises(SandboxException, match="Volumes not found"):
        await AsyncSandbox.create(volume_mounts={"/x": small_volume}, **small_options)
    assert (await survivor.commands.run("cat /mnt/data/file")).stdout == "kept\n"
    await small_engine.restart()
    await survivor.pause(keep_memory=False)
    await small_engine.restart()
    again = await survivor.connect(timeout=120)
    assert (await again.commands.run("cat /mnt/data/file")).stdout == "kept\n"
    with pytest.raises(VolumeNotFoundException):
        await AsyncVolume.connect(small_volume.volume_id, **small_options)
    assert place_of(small_engine, small_volume).exists()
    await again.kill()
    assert not place_of(small_engine, small_volume).exists()


async def test_volume__unreadable_record_holds_no_volume(small_engine, small_volume, survivor):
    """The files of a volume that stayed mounted in its root would be removed with the root."""
    root = f"/run/sandbox-engine/{small_engine.instance}/roots/{survivor.sandbox_id}"
    record = small_engine.state_dir / "sandboxes" / survivor.sandbox_id / "record.json"
    await small_volume.write_file("/file", "kept")
    small_engine.kill()
    record.write_text("{}")
    await asyncio.to_thread(small_engine.start)
    assert not os.path.ismount(root)
    assert not is_mounted(small_engine, small_volume)
    assert await small_volume.read_file("/file") == "kept"


async def test_volume__crash_during_creation_leaves_complete_volumes(small_engine, small_options):
    creating = [
        asyncio.create_task(AsyncVolume.create(f"n{number}", retries=0, **small_options))
        for number in range(12)
    ]
    await until(lambda: _is(any(task.done() for task in creating)), timeout=60)
    await small_engine.restart()
    await asyncio.gather(*creating, return_exceptions=True)
    found = await AsyncVolume.list(**small_options)
    created = {task.result().volume_id for task in creating if task.exception() is None}
    assert created <= {one.volume_id for one in found}
    for one in found:
        volume = await AsyncVolume.connect(one.volume_id, **small_options)
        await volume.write_file("/file", "x")
        assert await AsyncVolume.destroy(one.volume_id, **small_options)
    volumes = small_engine.state_dir / "volumes"
    await until(lambda: _is(not list(volumes.iterdir())), timeout=60)


@pytest.mark.slow  # a crash needs an engine of its own
async def test_volume__crash_during_an_upload_changes_nothing(
    small_engine, small_volume, small_options
):
    await small_volume.write_file("/file", "old")

    async def endless():
        while True:
            yield bytes(1 << 20)

    async def upload():
        address = f"{small_engine.url}/volumecontent/{small_volume.volume_id}/file"
        headers = {"Authorization": f"Bearer {small_volume.token}"}
        async with httpx.AsyncClient(timeout=60) as api:
            with pytest.raises(httpx.HTTPError):
                await api.put(
                    address,
                    params={"path": "/file", "force": "true"},
                    headers=headers,
                    content=endless(),
                )

    uploading = asyncio.create_task(upload())
    await until(lambda: _is(is_mounted(small_engine, small_volume)), timeout=60)
    small_engine.kill()
    await uploading
    await asyncio.to_thread(small_engine.start)
    assert not is_mounted(small_engine, small_volume)
    assert await small_volume.read_file("/file") == "old"
    assert [entry.name for entry in await small_volume.list("/")] == ["file"]


async def test_volume__lingering_mount_is_reused(small_engine, small_volume, survivor):
    """What was unmounted goes on while something in it is open; a second mount would destroy it."""
    place = place_of(small_engine, small_volume)
    lingering = os.open(place / "content", os.O_RDONLY)
    try:
        await survivor.kill()
        assert not is_mounted(small_engine, small_volume)
        os.mkdir("made", dir_fd=lingering)
        assert [entry.name for entry in await small_volume.list("/")] == ["made"]
    finally:
        os.close(lingering)
    await until(lambda: _is(not loop_devices.is_in_use(place / "volume.img")), timeout=60)
    assert [entry.name for entry in await small_volume.list("/")] == ["made"]


@pytest.mark.slow  # a crash needs an engine of its own
async def test_volume__constant_use_leaves_nothing(small_engine, small_volume, small_options):
    before = await leftovers.settled(small_engine)

    async def come_and_go(number):
        for _ in range(4):
            async with await AsyncSandbox.create(
                timeout=120, volume_mounts={"/mnt/data": small_volume}, **small_options
            ) as sandbox:
                await sandbox.commands.run(
                    f"date >> /mnt/data/{number}; mkdir -p /mnt/data/d{number}"
                )
            await small_volume.write_file(f"/outside{number}", "x", force=True)

    await asyncio.gather(*(come_and_go(number) for number in range(4)))
    for number in range(4):
        assert len((await small_volume.read_file(f"/{number}")).splitlines()) == 4
    await leftovers.back_to(small_engine, before)
    image = place_of(small_engine, small_volume) / "volume.img"
    await until(lambda: _is(not loop_devices.is_in_use(image)), timeout=60)
    checked = await asyncio.to_thread(
        subprocess.run, ["e2fsck", "-f", "-n", image], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
