"""What a full volume and a large file do, and to whom."""

import io

import pytest
from e2b import AsyncSandbox, AsyncVolume, VolumeException

from sandbox_engine.machine import resources
from tests.engine.engine_process import running_engine
from tests.engine.file_systems import small_file_system
from tests.engine.memory_growth import MIB, grows_by_less_than

pytestmark = pytest.mark.needs_engine


async def test_volume_limit__full_volume_affects_its_writers_only(
    small_engine, small_volume, small_options
):
    await small_volume.write_file("/old", "kept")
    async with await AsyncSandbox.create(
        timeout=300, volume_mounts={"/mnt/data": small_volume}, **small_options
    ) as sandbox:
        filled = await sandbox.commands.run("cat /dev/zero > /mnt/data/filler; true")
        assert "No space left on device" in filled.stderr
        with pytest.raises(VolumeException, match="507"):
            await small_volume.write_file("/new", bytes(MIB))
        with pytest.raises(VolumeException, match="507"):
            await small_volume.write_file("/old", bytes(MIB), force=True)
        assert await small_volume.read_file("/old") == "kept"
        assert [one.name for one in await small_volume.list("/")] == ["filler", "old"]
        image = small_engine.state_dir / "volumes" / small_volume.volume_id / "volume.img"
        assert image.stat().st_blocks * 512 <= 64 * MIB
        await sandbox.commands.run("head -c 20M /dev/zero > own")
        await small_volume.remove("/filler")
        await small_volume.write_file("/new", bytes(MIB))


async def test_volume_limit__oversized_file_leaves_nothing(small_volume):
    with pytest.raises(VolumeException, match="507"):
        await small_volume.write_file("/large", _zeros(200 * MIB))
    assert await small_volume.list("/") == []
    await small_volume.write_file("/fits", bytes(40 * MIB))


@pytest.mark.slow  # fills a disk
async def test_volume_limit__full_machine_rejects_writes(monkeypatch):
    """A volume is sparse and may promise more than there is."""
    with (
        small_file_system(200) as directory,
        running_engine("--min-free-disk-mb", "120", "--pool-size", "0", parent=directory) as engine,
    ):
        monkeypatch.setenv("E2B_VOLUME_API_URL", engine.url)
        volume = await AsyncVolume.create("sparse", **engine.options)
        with pytest.raises(VolumeException, match=r"507: .* on the machine"):
            await volume.write_file("/large", _zeros(400 * MIB))
        assert resources.free_disk(directory) > 40 * MIB
        assert await volume.list("/") == []
        await volume.write_file("/small", bytes(MIB))


@pytest.mark.slow  # a large transfer
async def test_volume_limit__large_file_uses_constant_memory(engine, volume):
    size = 200 * MIB
    with grows_by_less_than(40 * MIB, pid=engine.pid):
        assert (await volume.write_file("/large", _zeros(size))).size == size
        received = 0
        async for piece in await volume.read_file("/large", format="stream"):
            received += len(piece)
    assert received == size


def _zeros(size):
    return _Zeros(size)


class _Zeros(io.RawIOBase):
    def __init__(self, size):
        self._left = size

    def readable(self):
        return True

    def readinto(self, buffer):
        count = min(len(buffer), self._left)
        buffer[:count] = bytes(count)
        self._left -= count
        return count
