import os
from contextlib import ExitStack, contextmanager

import pytest
from e2b import AsyncSandbox, SandboxState, ServiceBusyException

from sandbox_engine import machine
from sandbox_engine.capacity import Capacity, MachineFull
from sandbox_engine.machine import MIB
from tests.engine.file_system import small_file_system
from tests.engine.process import running_engine

pytestmark = pytest.mark.needs_engine

KEPT_FREE = 120
FILE_SYSTEM = 300


@pytest.fixture(scope="module")
def directory():
    """Make a file system of the module's own."""
    with small_file_system(FILE_SYSTEM) as directory:
        yield directory


@pytest.fixture(scope="module")
def small_engine(directory):
    """Run an engine on a small disk."""
    flags = ("--min-free-disk-mb", str(KEPT_FREE), "--disk-mb", "64", "--pool-size", "0")
    with running_engine(*flags, parent=directory) as engine:
        yield engine


@contextmanager
def filled(directory):
    """Fill the disk below what is to stay free, until the block ends."""
    filler = directory / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, machine.free_disk(directory) - (KEPT_FREE - 10) * MIB)
    try:
        yield
    finally:
        filler.unlink()


def test_what_starts_at_the_same_time_counts_together(directory):
    room = machine.free_disk(directory)
    capacity = Capacity(directory, min_free_memory=0, min_free_disk=room // 2)
    share = room // 2 // 4
    with ExitStack() as started:
        for _ in range(4):
            started.enter_context(capacity.reserve(disk=share))
        with pytest.raises(MachineFull, match="disk is nearly full"):
            started.enter_context(capacity.reserve(disk=share))
    with capacity.reserve(disk=share):
        pass


def test_memory_that_is_promised_is_not_promised_again(directory):
    available = machine.memory().available
    capacity = Capacity(directory, min_free_memory=0, min_free_disk=0)
    with (
        capacity.reserve(memory=available // 2),
        pytest.raises(MachineFull, match="--min-free-memory-mb"),
        capacity.reserve(memory=available * 3 // 4),
    ):
        pass


async def test_a_machine_whose_disk_is_nearly_full_starts_nothing_and_says_what_to_do(
    small_engine, directory
):
    with filled(directory):
        with pytest.raises(ServiceBusyException, match=r"nearly full.*--min-free-disk-mb"):
            await AsyncSandbox.create(timeout=60, retries=0, **small_engine.options)
        assert await AsyncSandbox.list(**small_engine.options).next_items() == []
    async with await AsyncSandbox.create(timeout=60, **small_engine.options) as sandbox:
        assert (await sandbox.commands.run("echo room")).stdout == "room\n"


async def test_a_paused_sandbox_is_not_resumed_on_a_full_disk(small_engine, directory):
    async with await AsyncSandbox.create(timeout=60, **small_engine.options) as sandbox:
        await sandbox.pause()
        with filled(directory):
            with pytest.raises(ServiceBusyException, match="disk is nearly full"):
                await sandbox.connect(timeout=60, retries=0)
            assert (await sandbox.get_info()).state is SandboxState.PAUSED
        await sandbox.connect(timeout=60)
        assert (await sandbox.commands.run("echo room")).stdout == "room\n"


async def test_a_machine_without_memory_to_spare_starts_nothing(directory):
    flags = ("--min-free-memory-mb", str(1 << 30), "--min-free-disk-mb", "0", "--pool-size", "0")
    with running_engine(*flags, parent=directory) as engine:
        with pytest.raises(ServiceBusyException, match=r"out of memory.*--min-free-memory-mb"):
            await AsyncSandbox.create(timeout=60, retries=0, **engine.options)
        assert await AsyncSandbox.list(**engine.options).next_items() == []
