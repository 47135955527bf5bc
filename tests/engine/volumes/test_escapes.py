"""What sandboxes put into a volume to have the API of its contents leave it."""

import asyncio
import secrets

import pytest
from e2b import VolumeException, VolumePathNotFoundException

from tests.engine.engine_process import REPOSITORY

pytestmark = pytest.mark.needs_engine

UP = "../" * 20


@pytest.fixture
def outside(tmp_path):
    """Make a directory of the host that no volume may lead to."""
    (tmp_path / "canary").write_text("the host's own")
    return tmp_path


@pytest.fixture
async def trap(mounted, outside):
    """Have a sandbox put links to the host's directory into the volume."""
    links = [f"ln -s {outside} dir", f"ln -s {UP}{outside} up", f"ln -s {outside}/canary file"]
    links += [f"ln -s {outside}/made dangling", "ln -s loop loop", "ln -s / root", "mkfifo fifo"]
    await mounted.commands.run(f"cd /mnt/data; {'; '.join(links)}")
    return mounted


async def test_volume_escape__links_are_shown_and_not_followed(trap, volume, outside):
    listed = {entry.name: entry for entry in await volume.list("/", depth=5)}
    assert set(listed) == {"dir", "up", "file", "dangling", "loop", "root", "fifo"}
    assert (str(listed["dir"].type), listed["dir"].target) == ("symlink", str(outside))
    assert str(listed["fifo"].type) == "unknown"
    assert str((await volume.get_info("/loop")).type) == "symlink"


async def test_volume_escape__nothing_outside_is_read(trap, volume):
    for way in ("dir/canary", "up/canary", "file", f"{UP}etc/passwd", "root/etc"):
        with pytest.raises(VolumePathNotFoundException):
            await volume.read_file(f"/{way}")
        with pytest.raises(VolumePathNotFoundException):
            await volume.list(f"/{way}")


async def test_volume_escape__nothing_outside_is_written(trap, volume, outside):
    for way in ("dir/made", "up/made", "dangling", "dir/canary", "file"):
        for force in (False, True):
            try:
                await volume.write_file(f"/{way}", "mine", force=force)
            except (VolumeException, VolumePathNotFoundException):
                continue
            assert await volume.read_file(f"/{way}") == "mine"  # inside then
    assert await asyncio.to_thread(_names, outside) == ["canary"]
    assert (outside / "canary").read_text() == "the host's own"


async def test_volume_escape__no_directory_is_made_outside(trap, volume, outside):
    for way in ("dir/made", "up/made/deep", "dangling/made", "dir"):
        for force in (False, True):
            with pytest.raises((VolumeException, VolumePathNotFoundException)):
                await volume.make_dir(f"/{way}", force=force)
    assert await asyncio.to_thread(_names, outside) == ["canary"]


async def test_volume_escape__removal_keeps_the_link_target(trap, volume, outside):
    for name in ("dir", "up", "file", "root", "loop", "dangling", "fifo"):
        await volume.remove(f"/{name}")
    assert (outside / "canary").exists()
    assert await volume.list("/") == []


async def test_volume_escape__nothing_outside_gets_another_owner_or_mode(trap, volume, outside):
    before = (outside / "canary").stat()
    for way in ("dir/canary", "up/canary", "file", "dir", "fifo"):
        with pytest.raises((VolumeException, VolumePathNotFoundException)):
            await volume.update_metadata(f"/{way}", uid=1000, mode=0o777)
    after = (outside / "canary").stat()
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)


async def test_volume_escape__link_inside_the_volume_works(mounted, volume):
    await mounted.commands.run("cd /mnt/data; mkdir real; ln -s /real dir; ln -s real/file file")
    await volume.write_file("/dir/file", "through")
    assert await volume.read_file("/real/file") == "through"
    await volume.write_file("/file", "again", force=True)
    assert await volume.read_file("/real/file") == "again"
    assert str((await volume.get_info("/file")).type) == "symlink"
    assert [entry.path for entry in await volume.list("/dir")] == ["/dir/file"]


async def test_volume_escape__swapped_directory_never_leads_out(mounted, volume, outside):
    script = (REPOSITORY / "tests/engine/guests/symlink_swapper.py").read_text()
    await mounted.files.write("symlink_swapper.py", script)
    await mounted.commands.run(f"cd /mnt/data; mkdir box; ln -s {outside} link")
    swapping = await mounted.commands.run(
        "cd /mnt/data; exec python3 ~/symlink_swapper.py box link", background=True, timeout=0
    )
    for _ in range(60):
        name = secrets.token_hex(4)
        for work in (
            volume.write_file(f"/box/{name}", "mine", force=True),
            volume.make_dir(f"/box/d{name}", force=True),
            volume.read_file("/box/canary"),
            volume.update_metadata("/box/canary", mode=0o777),
        ):
            try:
                answer = await work
            except (VolumeException, VolumePathNotFoundException):
                continue
            assert answer != "the host's own"
    await swapping.kill()
    assert await asyncio.to_thread(_names, outside) == ["canary"]
    assert (outside / "canary").stat().st_mode & 0o777 == 0o644


def _names(directory):
    return sorted(entry.name for entry in directory.iterdir())
