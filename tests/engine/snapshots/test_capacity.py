import os
import shutil

import pytest
from e2b import AsyncSandbox, ServiceBusyException

from tests.engine.engine_process import running_engine
from tests.engine.file_systems import sharing_file_system, small_file_system
from tests.engine.snapshots.forks import fork_of

pytestmark = pytest.mark.needs_engine

FLAGS = ("--pool-size", "0", "--disk-mb", "512", "--min-free-disk-mb", "64")


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="xfsprogs is not installed")
async def test_snapshot__forks_share_blocks_where_supported():
    with (
        sharing_file_system(2048) as directory,
        running_engine(*FLAGS, parent=directory) as engine,
    ):
        sandbox = await AsyncSandbox.create(timeout=300, **engine.options)
        await sandbox.commands.run("head -c 150M /dev/urandom | tee big | sha256sum > sum; sync")
        before = os.statvfs(directory)
        fork = await fork_of(sandbox)
        taken = (before.f_bfree - os.statvfs(directory).f_bfree) * before.f_frsize
        assert taken < 60 << 20
        await sandbox.commands.run("head -c 150M /dev/zero > big")
        await fork.commands.run("sha256sum big | cut -c-64 | grep -qf - sum")


@pytest.mark.slow  # fills a disk
async def test_snapshot__full_machine_rejects_a_snapshot():
    with (
        small_file_system(512) as directory,
        running_engine(*FLAGS, parent=directory) as engine,
    ):
        sandbox = await AsyncSandbox.create(timeout=300, **engine.options)
        await sandbox.commands.run("head -c 250M /dev/urandom > big; sync")
        for refused in (sandbox.create_snapshot, sandbox.fork):
            with pytest.raises(ServiceBusyException, match="disk is nearly full"):
                await refused(retries=0)
        await sandbox.commands.run("rm big; echo on > note; sync")
        fork = await fork_of(sandbox)
        assert await fork.files.read("note") == "on\n"
        await fork.create_snapshot()  # mounted still when the engine is reset
