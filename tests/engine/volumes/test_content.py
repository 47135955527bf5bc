"""A volume's contents from outside, through the unmodified SDK."""

import io
import random
from datetime import UTC, datetime, timedelta

import pytest
from e2b import Volume, VolumeException, VolumePathNotFoundException

pytestmark = pytest.mark.needs_engine

MIB = 1 << 20


async def test_volume_content__files_are_written_and_read_in_all_formats(volume):
    data = random.Random(1).randbytes(5 * MIB + 7)
    await volume.write_file("/text", "text \u2603")
    await volume.write_file("/bytes", data)
    await volume.write_file("/stream", io.BytesIO(data))
    await volume.write_file("empty", "")
    assert await volume.read_file("/text") == "text \u2603"
    assert await volume.read_file("/bytes", format="bytes") == data
    pieces = [piece async for piece in await volume.read_file("/stream", format="stream")]
    assert len(pieces) > 1
    assert b"".join(pieces) == data
    assert await volume.read_file("/empty") == ""


async def test_volume_content__replacing_a_file_requires_force(volume):
    await volume.write_file("/file", "first")
    with pytest.raises(VolumeException, match=r"409: .* already exists"):
        await volume.write_file("/file", "second")
    assert await volume.read_file("/file") == "first"
    await volume.write_file("/file", "third", force=True)
    assert await volume.read_file("/file") == "third"
    assert [entry.name for entry in await volume.list("/")] == ["file"]


async def test_volume_content__creating_parents_requires_force(volume):
    with pytest.raises(VolumePathNotFoundException):
        await volume.write_file("/a/b/file", "x")
    with pytest.raises(VolumePathNotFoundException):
        await volume.make_dir("/a/b")
    await volume.write_file("/a/b/file", "x", force=True)
    await volume.make_dir("/c/d", force=True)
    assert (await volume.make_dir("/c/d", force=True)).path == "/c/d"
    with pytest.raises(VolumeException, match="409"):
        await volume.make_dir("/c/d")
    with pytest.raises(VolumeException, match="409"):
        await volume.make_dir("/a/b/file", force=True)


async def test_volume_content__entry_is_described(volume):
    before = datetime.now(UTC) - timedelta(seconds=5)
    made = await volume.write_file("/file", "four", uid=1001, gid=27, mode=0o640)
    assert made == await volume.get_info("/file")
    assert (made.name, made.path, str(made.type), made.size) == ("file", "/file", "file", 4)
    assert (made.uid, made.gid, made.mode, made.target) == (1001, 27, 0o640, None)
    assert before < made.mtime <= datetime.now(UTC)
    plain = await volume.make_dir("/dir")
    assert (plain.uid, plain.gid, plain.mode, str(plain.type)) == (1000, 1000, 0o777, "directory")
    assert (await volume.write_file("/plain", "")).mode == 0o666
    assert (await volume.get_info("/")).path == "/"


async def test_volume_content__owner_and_mode_are_changed_separately(volume):
    await volume.write_file("/file", "x", uid=5, gid=6, mode=0o600)
    changed = await volume.update_metadata("/file", mode=0o755)
    assert (changed.uid, changed.gid, changed.mode) == (5, 6, 0o755)
    changed = await volume.update_metadata("/file", uid=0)
    assert (changed.uid, changed.gid, changed.mode) == (0, 6, 0o755)
    changed = await volume.update_metadata("/file", gid=65535)
    assert (changed.uid, changed.gid) == (0, 65535)
    with pytest.raises(VolumePathNotFoundException):
        await volume.update_metadata("/missing", mode=0o600)


async def test_volume_content__invalid_ids_and_modes_are_rejected(volume):
    await volume.write_file("/file", "x")
    for wrong in ({"uid": -1}, {"gid": 65536}, {"mode": 0o10000}, {"mode": -1}):
        for work in (
            volume.update_metadata("/file", **wrong),
            volume.write_file("/new", "x", **wrong),
            volume.make_dir("/new", **wrong),
        ):
            with pytest.raises(VolumeException, match="400"):
                await work
    assert not await volume.exists("/new")


async def test_volume_content__list_has_the_requested_depth(volume):
    await volume.write_file("/a/b/c/file", "x", force=True)
    await volume.write_file("/z", "x")
    assert [entry.path for entry in await volume.list("/")] == ["/a", "/z"]
    assert [entry.path for entry in await volume.list("a/b", depth=2)] == ["/a/b/c", "/a/b/c/file"]
    with pytest.raises(VolumePathNotFoundException):
        await volume.list("/missing")
    with pytest.raises(VolumeException, match=r"400: .* not a directory"):
        await volume.list("/z")
    with pytest.raises(VolumeException, match="400: depth"):
        await volume.list("/", depth=11)


async def test_volume_content__removal_is_recursive(volume):
    await volume.write_file("/a/b/file", "x", force=True)
    await volume.remove("/a")
    assert await volume.list("/") == []
    assert not await volume.exists("/a/b/file")
    with pytest.raises(VolumePathNotFoundException):
        await volume.remove("/a")
    with pytest.raises(VolumeException, match="400: The root"):
        await volume.remove("/")


async def test_volume_content__non_files_are_rejected(volume):
    await volume.make_dir("/dir")
    with pytest.raises(VolumeException, match="400"):
        await volume.read_file("/dir")
    with pytest.raises(VolumeException, match="400"):
        await volume.write_file("/dir", "x", force=True)
    with pytest.raises(VolumePathNotFoundException):
        await volume.read_file("/missing")


def test_volume_content__sync_sdk_works_too(volume, volume_options):
    again = Volume.connect(volume.volume_id, **volume_options)
    again.write_file("/file", io.BytesIO(b"x" * MIB))
    assert b"".join(again.read_file("/file", format="stream")) == b"x" * MIB
    assert again.make_dir("/dir").path == "/dir"
    assert [entry.name for entry in again.list("/")] == ["dir", "file"]
    again.remove("/file")
    assert not again.exists("/file")
