from contextlib import ExitStack

import pytest
from e2b import AsyncSandbox, ServiceBusyException

from sandbox_engine.machine import resources
from sandbox_engine.machine.capacity import Capacity, MachineFull
from tests.engine.engine_process import running_engine
from tests.engine.file_systems import small_file_system

pytestmark = pytest.mark.needs_engine


def test_capacity__concurrent_starts_count_together():
    with small_file_system(100) as directory, ExitStack() as started:
        room = resources.free_disk(directory)
        capacity = Capacity(directory, min_free_memory=0, min_free_disk=room // 2)
        share = room // 2 // 4
        for _ in range(4):
            started.enter_context(capacity.reserve(disk=share))
        with pytest.raises(MachineFull, match="disk is nearly full"):
            started.enter_context(capacity.reserve(disk=share))
        started.close()
        started.enter_context(capacity.reserve(disk=share))


def test_capacity__promised_memory_is_not_promised_twice(tmp_path):
    available = resources.memory().available
    capacity = Capacity(tmp_path, min_free_memory=0, min_free_disk=0)
    with (
        capacity.reserve(memory=available // 2),
        pytest.raises(MachineFull, match="--min-free-memory-mb"),
        capacity.reserve(memory=available * 3 // 4),
    ):
        pass


async def test_capacity__machine_without_free_memory_starts_nothing():
    flags = ("--min-free-memory-mb", str(1 << 30), "--pool-size", "0")
    with running_engine(*flags) as engine:
        with pytest.raises(ServiceBusyException, match=r"out of memory.*--min-free-memory-mb"):
            await AsyncSandbox.create(timeout=60, retries=0, **engine.options)
        assert await AsyncSandbox.list(**engine.options).next_items() == []
