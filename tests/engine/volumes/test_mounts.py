"""Volumes in sandboxes, through the unmodified SDK."""

import asyncio
import secrets

import pytest
from e2b import AsyncSandbox, AsyncVolume, SandboxException

from tests.engine.marked_sandboxes import list_marked, new_mark
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


async def test_volume_mount__writes_are_visible_in_other_sandboxes(mounted, volume, volume_options):
    async with await AsyncSandbox.create(
        timeout=120, volume_mounts={"/elsewhere": volume.name}, **volume_options
    ) as other:
        await mounted.commands.run("echo one > /mnt/data/file")
        assert (await other.commands.run("cat /elsewhere/file")).stdout == "one\n"
        await other.commands.run("echo two >> /elsewhere/file")
        assert (await mounted.commands.run("cat /mnt/data/file")).stdout == "one\ntwo\n"
        await volume.write_file("/file", "three\n", force=True)
        assert (await other.commands.run("cat /elsewhere/file")).stdout == "three\n"


async def test_volume_mount__files_outlive_the_sandbox(mounted, volume, volume_options):
    await mounted.commands.run("mkdir -p /mnt/data/deep && echo kept > /mnt/data/deep/file")
    await mounted.kill()
    assert await volume.read_file("/deep/file") == "kept\n"
    async with await AsyncSandbox.create(
        timeout=120, volume_mounts={"/mnt/data": volume}, **volume_options
    ) as later:
        assert (await later.commands.run("cat /mnt/data/deep/file")).stdout == "kept\n"


async def test_volume_mount__mounts_are_shown_in_info_and_list(mounted, volume, volume_options):
    expected = [{"name": volume.name, "path": "/mnt/data"}]
    assert (await mounted.get_info()).volume_mounts == expected
    mark = {"volume": volume.name}
    listed = await list_marked(mark, volume_options)
    found = {one.sandbox_id: one.volume_mounts for one in listed}
    assert found[mounted.sandbox_id] == expected


async def test_volume_mount__files_api_works(mounted, volume):
    await mounted.files.write("/mnt/data/made/file", "written")
    assert await volume.read_file("/made/file") == "written"
    entry = await volume.get_info("/made/file")
    assert (entry.uid, entry.gid) == (1000, 1000)
    await volume.write_file("/made/other", b"x" * 3_000_000)
    read = await mounted.files.read("/mnt/data/made/other", format="bytes")
    assert read == b"x" * 3_000_000
    assert [one.name for one in await mounted.files.list("/mnt/data/made")] == ["file", "other"]
    await mounted.files.rename("/mnt/data/made/file", "/mnt/data/moved")
    await mounted.files.remove("/mnt/data/made")
    assert [one.path for one in await volume.list("/", depth=2)] == ["/moved"]


async def test_volume_mount__mount_point_cannot_be_removed(mounted, volume):
    with pytest.raises(SandboxException):
        await mounted.files.remove("/mnt/data")
    tried = "umount /mnt/data || rmdir /mnt/data || rm -r /mnt || echo refused"
    assert "refused" in (await mounted.commands.run(tried, user="root")).stdout
    await volume.write_file("/file", "kept")
    assert (await mounted.commands.run("cat /mnt/data/file")).stdout == "kept"


async def test_volume_mount__watch_sees_writes_of_other_sandboxes(mounted, volume, volume_options):
    heard: list[str] = []
    watch = await mounted.files.watch_dir("/mnt/data", lambda event: heard.append(event.name))
    async with await AsyncSandbox.create(
        timeout=120, volume_mounts={"/mnt/data": volume}, **volume_options
    ) as other:
        await other.files.write("/mnt/data/from-other", "x")
        await volume.write_file("/from-outside", "x")
        await until(lambda: _is({"from-other", "from-outside"} <= set(heard)), timeout=60)
    await watch.stop()


async def _is(condition):
    return condition


async def test_volume_mount__survives_all_kinds_of_pause(mounted, volume):
    await mounted.commands.run("echo before > /mnt/data/file")
    for keep_memory in (True, False):
        await mounted.pause(keep_memory=keep_memory)
        await volume.write_file("/meanwhile", str(keep_memory), force=True)
        again = await mounted.connect(timeout=120)
        assert (await again.commands.run("cat /mnt/data/file")).stdout == "before\n"
        assert (await again.commands.run("cat /mnt/data/meanwhile")).stdout == str(keep_memory)


async def test_volume_mount__forks_share_volumes_and_snapshots_do_not(
    mounted, volume, volume_options
):
    await mounted.commands.run("echo before > /mnt/data/file")
    [fork] = await mounted.fork()
    await fork.commands.run("echo from the fork >> /mnt/data/file")
    assert (await mounted.commands.run("cat /mnt/data/file")).stdout == "before\nfrom the fork\n"
    assert (await fork.get_info()).volume_mounts == (await mounted.get_info()).volume_mounts
    await fork.kill()
    snapshot = await mounted.create_snapshot()
    async with await AsyncSandbox.create(
        snapshot.snapshot_id, timeout=120, **volume_options
    ) as later:
        assert (await later.commands.run("ls /mnt/data")).stdout == ""
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **volume_options)
    assert await volume.read_file("/file") == "before\nfrom the fork\n"


async def test_volume_mount__devices_and_setuid_programs_are_inert(mounted, volume):
    await mounted.commands.run("cp /usr/bin/id /mnt/data/id", user="root")
    await volume.update_metadata("/id", uid=0, gid=0, mode=0o4755)
    assert "euid" not in (await mounted.commands.run("/mnt/data/id")).stdout


async def test_volume_mount__several_volumes_are_mounted(volume, volume_options):
    other = await AsyncVolume.create(f"{volume.name}-2", **volume_options)
    async with await AsyncSandbox.create(
        timeout=120,
        volume_mounts={"/data/one": volume, "/data/two": other, "/home/user/again": volume},
        **volume_options,
    ) as sandbox:
        await sandbox.commands.run("echo 1 > /data/one/file; echo 2 > /data/two/file")
        assert (await sandbox.commands.run("cat again/file")).stdout == "1\n"
    assert await other.read_file("/file") == "2\n"
    await AsyncVolume.destroy(other.volume_id, **volume_options)


async def test_volume_mount__invalid_mount_points_are_rejected(volume, volume_options):
    for wrong in (
        ["/"], ["relative"], [""], ["/a/../b"], ["/a/"], ["//a"], ["/proc"], ["/sys/x"], ["/dev/shm"],
        ["/etc"], ["/etc/x"], ["/a\0b"], ["/a", "/a/b"], ["/run/e2b"],
    ):  # fmt: skip
        with pytest.raises(SandboxException, match="400: Volumes cannot be mounted there"):
            await AsyncSandbox.create(
                timeout=60, volume_mounts=dict.fromkeys(wrong, volume), **volume_options
            )


async def test_volume_mount__unknown_volume_is_rejected(volume_options):
    with pytest.raises(SandboxException, match="400: Volumes not found: 'missing'"):
        await AsyncSandbox.create(timeout=60, volume_mounts={"/x": "missing"}, **volume_options)


async def test_volume_mount__file_as_mount_point_is_rejected(volume, volume_options):
    mark = new_mark()
    with pytest.raises(SandboxException, match="cannot be mounted at '/bin/sh'"):
        await AsyncSandbox.create(
            timeout=60, volume_mounts={"/bin/sh": volume}, metadata=mark, **volume_options
        )
    assert await list_marked(mark, volume_options) == []


async def test_volume_mount__links_cannot_redirect_the_mount(volume, volume_options, tmp_path):
    """A sandbox prepares links, and is then started anew from its files."""
    outside = tmp_path / secrets.token_hex(4)
    async with await AsyncSandbox.create(
        timeout=120, volume_mounts={"/srv/box/data": volume}, **volume_options
    ) as sandbox:
        await volume.write_file("/file", "mine")
        await sandbox.commands.run(
            f"mv /srv/box /srv/old && ln -s ../../../../../../..{outside} /srv/box && mkdir -p {outside}",
            user="root",
        )
        await sandbox.pause(keep_memory=False)
        again = await sandbox.connect(timeout=120)
        assert (await again.commands.run(f"cat {outside}/data/file")).stdout == "mine"
    assert not await asyncio.to_thread(outside.exists)


async def test_volume_mount__link_to_a_system_path_is_rejected(volume, volume_options):
    async with await AsyncSandbox.create(
        timeout=120, volume_mounts={"/srv/box/data": volume}, **volume_options
    ) as sandbox:
        await sandbox.commands.run("mv /srv/box /srv/old && ln -s /etc /srv/box", user="root")
        await sandbox.pause(keep_memory=False)
        with pytest.raises(SandboxException, match="reserved for the system"):
            await sandbox.connect(timeout=120)
