import asyncio
import contextlib
import fcntl
import json
import os
import signal

import pytest
from e2b import AsyncSandbox

from tests.engine import leftovers
from tests.engine.engine_process import host_pid, running_engine
from tests.engine.polling import until
from tests.engine.snapshots.forks import fork_of

pytestmark = pytest.mark.needs_engine

FIFREEZE = 0xC0045877


@pytest.fixture(scope="module")
def mortal_engine():
    """Run an engine that tests may kill."""
    with running_engine("--pool-size", "2") as engine:
        yield engine


@pytest.fixture
async def source(mortal_engine):
    """Create a sandbox with a file in it."""
    sandbox = await AsyncSandbox.create(timeout=300, **mortal_engine.options)
    await sandbox.files.write("note", "text")
    yield sandbox
    await sandbox.kill()


@pytest.mark.slow  # a crash needs an engine of its own
async def test_snapshot__last_fork_leaves_nothing(mortal_engine):
    before = await leftovers.settled(mortal_engine)
    source = await AsyncSandbox.create(timeout=120, **mortal_engine.options)
    second = await fork_of(source)
    third = await fork_of(second)
    snapshot = await third.create_snapshot()
    for sandbox in (source, second, third):
        await sandbox.kill()
    of_snapshot = await AsyncSandbox.create(
        snapshot.snapshot_id, timeout=60, **mortal_engine.options
    )
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **mortal_engine.options)
    await of_snapshot.kill()
    await leftovers.back_to(mortal_engine, before)


async def test_snapshot__snapshots_and_forks_survive_a_restart(mortal_engine, source):
    before = await leftovers.settled(mortal_engine)
    snapshot = await source.create_snapshot(name="kept")
    fork = await fork_of(source)
    await mortal_engine.restart()
    assert await fork.files.read("note") == "text"
    again = await AsyncSandbox.create("kept", timeout=60, **mortal_engine.options)
    assert await again.files.read("note") == "text"
    for sandbox in (fork, again):
        await sandbox.kill()
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **mortal_engine.options)
    await leftovers.back_to(mortal_engine, before)


@pytest.mark.slow  # a crash needs an engine of its own
async def test_snapshot__crash_during_a_copy_leaves_no_frozen_writer(mortal_engine, source):
    before = await leftovers.settled(mortal_engine)
    await source.commands.run("dd if=/dev/urandom of=big bs=1M count=256 status=none")
    await source.commands.run("sha256sum big > sum")
    taking = asyncio.create_task(source.create_snapshot())
    kept = mortal_engine.state_dir / "snapshots"
    await until(lambda: _is(list(kept.glob("*/disk.img"))), timeout=60, pause=0.001)
    mortal_engine.kill()
    _freeze(mortal_engine.state_dir / "sandboxes" / source.sandbox_id / "disk")
    with contextlib.suppress(Exception):
        await taking
    await asyncio.to_thread(mortal_engine.start)

    await source.commands.run("echo more >> note; sync", timeout=60)
    assert await source.files.read("note") == "textmore\n"
    pages = AsyncSandbox.list_snapshots(**mortal_engine.options)
    for whole in await pages.next_items():  # the kill may have come too late
        created = await AsyncSandbox.create(whole.snapshot_id, timeout=60, **mortal_engine.options)
        await created.commands.run("sha256sum -c sum")
        await created.kill()
        await AsyncSandbox.delete_snapshot(whole.snapshot_id, **mortal_engine.options)
    await leftovers.back_to(mortal_engine, before)


@pytest.mark.slow  # a crash needs an engine of its own
async def test_snapshot__fork_resumes_after_a_reboot(mortal_engine, source):
    fork = await fork_of(source)
    pid = host_pid(mortal_engine, fork)
    mortal_engine.kill()
    os.kill(pid, signal.SIGKILL)
    for mounted in (mortal_engine.state_dir / "snapshots").glob("*/disk"):
        unmount = await asyncio.create_subprocess_exec("umount", "--lazy", mounted)
        assert await unmount.wait() == 0
    await asyncio.to_thread(mortal_engine.start)
    await fork.connect(timeout=60)
    assert await fork.files.read("note") == "text"
    await fork.kill()


@pytest.mark.slow  # a crash needs an engine of its own
async def test_snapshot__snapshot_lost_in_a_power_cut_is_not_listed(mortal_engine, source):
    snapshot = await source.create_snapshot(name="lost")
    record = next((mortal_engine.state_dir / "snapshots").glob("*/record.json"))
    await until(lambda: _is(not json.loads(record.read_text())["unwritten_since"]), timeout=60)
    mortal_engine.kill()
    written = json.loads(record.read_text())
    record.write_text(json.dumps(written | {"unwritten_since": "the boot before this one"}))
    await asyncio.to_thread(mortal_engine.start)
    assert not await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **mortal_engine.options)
    assert not record.exists()


def _freeze(mountpoint):
    """Leave the disk as a kill in the middle of the copy does."""
    descriptor = os.open(mountpoint, os.O_RDONLY)
    assert os.fstat(descriptor).st_dev != mountpoint.parent.stat().st_dev
    with contextlib.suppress(OSError):  # it is left so already
        fcntl.ioctl(descriptor, FIFREEZE, 0)
    os.close(descriptor)


async def _is(condition):
    return condition
