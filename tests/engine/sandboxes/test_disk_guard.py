"""A machine whose disk runs full while sandboxes write, on a file system of the test's own."""

import os
import subprocess
from contextlib import contextmanager, suppress

import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    NotEnoughSpaceException,
    SandboxException,
    SandboxState,
    ServiceBusyException,
)

from sandbox_engine.machine import resources
from sandbox_engine.machine.resources import MIB
from tests.engine.engine_process import running_engine
from tests.engine.file_systems import small_file_system
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

FILE_SYSTEM, LEAST_FREE = 280, 160  # in MiB; from half of the latter on nobody may write
WRITE_SLOWLY = "while :; do head -c 64k /dev/zero; sleep 0.02; done > filler"
WRITE_ON = "while :; do head -c 1M /dev/zero; sleep 0.01; done > filler"


@pytest.fixture(scope="module")
def directory():
    """Make a file system of the module's own."""
    with small_file_system(FILE_SYSTEM) as directory:
        yield directory


@pytest.fixture(scope="module")
def engine(directory):
    """Run an engine whose sandboxes may each write more than the disk of the machine holds."""
    flags = ("--min-free-disk-mb", str(LEAST_FREE), "--disk-mb", "1024", "--pool-size", "0")
    with running_engine(*flags, parent=directory) as engine:
        yield engine


@pytest.fixture
async def neighbour(engine):
    """Create a sandbox that does not write."""
    async with await AsyncSandbox.create(timeout=300, **engine.options) as sandbox:
        yield sandbox


async def test_disk_guard__full_disk_prevents_starts(engine, directory):
    with _short(directory):
        with pytest.raises(ServiceBusyException, match=r"nearly full.*--min-free-disk-mb"):
            await AsyncSandbox.create(timeout=60, retries=0, **engine.options)
        assert await AsyncSandbox.list(**engine.options).next_items() == []
    async with await AsyncSandbox.create(timeout=60, **engine.options) as sandbox:
        assert (await sandbox.commands.run("echo room")).stdout == "room\n"


async def test_disk_guard__full_disk_prevents_resumes(engine, directory):
    async with await AsyncSandbox.create(timeout=60, **engine.options) as sandbox:
        await sandbox.pause()
        with _short(directory):
            with pytest.raises(ServiceBusyException, match="disk is nearly full"):
                await sandbox.connect(timeout=60, retries=0)
            assert (await sandbox.get_info()).state is SandboxState.PAUSED
        await sandbox.connect(timeout=60)
        assert (await sandbox.commands.run("echo room")).stdout == "room\n"


async def test_disk_guard__fast_writer_is_paused_and_nobody_else(engine, directory, neighbour):
    async with await AsyncSandbox.create(timeout=300, **engine.options) as writer:
        await writer.commands.run(WRITE_ON, background=True, timeout=0)
        await until(lambda: _is_paused(writer), timeout=60)
        assert "disk is nearly full" in await engine.state_reason(writer)
        _flush(engine.state_dir / "sandboxes" / writer.sandbox_id / "disk")
        assert resources.free_disk(directory) > LEAST_FREE // 8 * MIB
        assert (await neighbour.commands.run("echo well")).stdout == "well\n"
        with pytest.raises(ServiceBusyException, match="disk is nearly full"):
            await writer.connect(timeout=60, retries=0)
    await neighbour.files.write("note", "there is room again")


@pytest.mark.slow  # one more way to fill a disk
async def test_disk_guard__slow_writer_is_paused(engine, directory):
    async with await AsyncSandbox.create(timeout=300, **engine.options) as writer:
        with _short(directory, free=LEAST_FREE // 2 + 4):
            await writer.commands.run(WRITE_SLOWLY, background=True, timeout=0)
            await until(lambda: _is_paused(writer), timeout=60)
            _flush(engine.state_dir / "sandboxes" / writer.sandbox_id / "disk")
            assert resources.free_disk(directory) > LEAST_FREE // 3 * MIB
        assert "disk is nearly full" in await engine.state_reason(writer)


@pytest.mark.slow  # one more way to fill a disk
async def test_disk_guard__filling_build_fails_and_leaves_nothing(engine, directory, neighbour):
    free = resources.free_disk(directory)
    template = AsyncTemplate().from_template("base").run_cmd(WRITE_ON)
    with pytest.raises(BuildException, match="disk is nearly full"):
        await AsyncTemplate.build(template, "filling", **engine.options)
    assert (await neighbour.commands.run("echo well")).stdout == "well\n"

    async def is_given_back():
        return resources.free_disk(directory) > free - 16 * MIB

    await until(is_given_back, timeout=60)


async def test_disk_guard__oversized_upload_is_rejected(directory, neighbour):
    room = resources.free_disk(directory) - LEAST_FREE // 2 * MIB
    with pytest.raises(NotEnoughSpaceException, match="not enough disk space available"):
        await neighbour.files.write("large", bytes(room))
    with pytest.raises(NotEnoughSpaceException, match="not enough disk space available"):
        await neighbour.files.write("large", _pieces(room // MIB))
    assert not await neighbour.files.exists("large")
    await neighbour.files.write("small", bytes(MIB))
    assert resources.free_disk(directory) > LEAST_FREE // 2 * MIB


@pytest.mark.slow  # one more way to fill a disk
async def test_disk_guard__unrecordable_pause_keeps_the_sandbox_running(directory, neighbour):
    with _full(directory):
        with pytest.raises(SandboxException):
            await neighbour.pause(retries=0)
        assert not await _is_paused(neighbour)
    assert (await neighbour.commands.run("echo well")).stdout == "well\n"
    await neighbour.pause()
    assert await _is_paused(neighbour)


@contextmanager
def _short(directory, *, free=LEAST_FREE - 10):
    """Fill the disk until this much is free, in MiB, until the block ends."""
    filler = directory / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, resources.free_disk(directory) - free * MIB)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def _full(directory):
    """Take all the room there is, until the block ends."""
    filler = directory / "filler"
    try:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, resources.free_disk(directory) - MIB)
        _write_until_full(filler)
        yield
    finally:
        filler.unlink()


def _write_until_full(path):
    """Take the last block; what the file system reserves for itself it gives up bit by bit."""
    with path.open("ab", buffering=0) as file:
        for _ in range(3):
            with suppress(OSError):
                while file.write(bytes(1024)):
                    pass
            _flush(path)


def _flush(path):
    """Wait until what was written there is on the disk."""
    subprocess.run(["sync", "--file-system", path], check=True)


async def _pieces(count):
    for _ in range(count):
        yield bytes(MIB)


async def _is_paused(sandbox):
    return (await sandbox.get_info()).state is SandboxState.PAUSED
