"""What a sandbox whose disk is full answers through the unmodified SDK, and that it hurts nobody else."""

import gzip
import random

import httpx
import pytest
from e2b import AsyncSandbox, NotEnoughSpaceException, Sandbox, SandboxException

from tests.engine.engine_process import running_engine
from tests.engine.memory_growth import MIB

pytestmark = pytest.mark.needs_engine

OLD = random.Random(1).randbytes(3 * MIB)


@pytest.fixture(scope="module")
def small_engine():
    """Run an engine whose sandboxes have disks of 64 MiB."""
    with running_engine("--disk-mb", "64", "--pool-size", "1") as engine:
        yield engine


@pytest.fixture(scope="module")
def small(small_engine):
    with Sandbox.create(timeout=600, **small_engine.options) as sandbox:
        yield sandbox


@pytest.fixture
async def sandbox(small, small_engine):
    """Empty the sandbox, but for a file that is to stay as it is."""
    small.commands.run("rm -rf /home/user/* /srv/*", user="root")
    sandbox = await AsyncSandbox.connect(small.sandbox_id, **small_engine.options)
    await sandbox.files.write("old", OLD)
    return sandbox


async def _pieces(count):
    for _ in range(count):
        yield bytes(MIB)


async def _no_room(sandbox, path, data, **form):
    with pytest.raises(NotEnoughSpaceException, match="not enough disk space available"):
        await sandbox.files.write(path, data, **form)


@pytest.mark.slow  # fills a disk
async def test_full_disk__oversized_upload_is_rejected_and_keeps_the_old_file(sandbox):
    for path in ("old", "new", "made/for/it"):
        await _no_room(sandbox, path, bytes(70 * MIB))
        await _no_room(sandbox, path, bytes(70 * MIB), use_octet_stream=True)
        await _no_room(sandbox, path, bytes(70 * MIB), gzip=True)
        await _no_room(sandbox, path, _pieces(200))
    assert await sandbox.files.read("old", format="bytes") == OLD
    assert not await sandbox.files.exists("new")
    assert not await sandbox.files.exists("made/for/it")


async def test_full_disk__disk_filled_by_commands_rejects_small_files(sandbox):
    await sandbox.commands.run("cat /dev/zero > filler; true")
    await _no_room(sandbox, "new", bytes(MIB))
    await _no_room(sandbox, "old", OLD + bytes(MIB))
    assert await sandbox.files.read("old", format="bytes") == OLD
    await sandbox.files.remove("filler")
    await sandbox.files.write("new", bytes(MIB))
    assert (await sandbox.files.get_info("new")).size == MIB


async def test_full_disk__file_is_replaced_by_a_smaller_one(sandbox):
    await sandbox.commands.run("cat /dev/zero > filler; true")
    await sandbox.files.write("old", OLD[: MIB // 2])
    assert await sandbox.files.read("old", format="bytes") == OLD[: MIB // 2]


async def test_full_disk__disk_without_inodes_rejects_new_files_only(sandbox):
    crowd = (
        "mkdir /srv/crowd; cd /srv/crowd; n=0; while : > $n; do n=$((n+1)); done 2>/dev/null; true"
    )
    await sandbox.commands.run(crowd, user="root")
    with pytest.raises(NotEnoughSpaceException, match="not enough inodes"):
        await sandbox.files.write("new", "x")
    with pytest.raises(SandboxException):
        await sandbox.files.make_dir("made")
    await sandbox.files.write("old", "replaced")
    assert await sandbox.files.read("old") == "replaced"


async def test_full_disk__body_expanding_beyond_the_disk_is_rejected(sandbox):
    expanding = gzip.compress(bytes(MIB)) * 4096
    async with httpx.AsyncClient(timeout=60) as client:
        refused = await client.post(
            sandbox.upload_url("expanding"),
            content=expanding,
            headers={"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"},
        )
    assert refused.status_code == 507
    assert not await sandbox.files.exists("expanding")


@pytest.mark.slow  # fills a disk
async def test_full_disk__neighbour_is_unaffected(sandbox, small_engine):
    await sandbox.commands.run("cat /dev/zero > filler; true")
    async with await AsyncSandbox.create(timeout=60, **small_engine.options) as neighbour:
        await neighbour.files.write("file", bytes(20 * MIB))
        assert (await neighbour.files.get_info("file")).size == 20 * MIB
