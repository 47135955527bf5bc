"""An engine where the host's own mounts are restricted, as systemd and containers have them."""

import subprocess

import pytest
from e2b import AsyncSandbox

from tests.engine.engine_process import EngineProcess
from tests.engine.file_systems import RELEASE_DISKS

pytestmark = pytest.mark.needs_engine

RESTRICTED = (
    f"{RELEASE_DISKS}\nmount -o remount,bind,nosuid,nodev,noexec /sys && echo there && exec cat"
)


@pytest.fixture
def host():
    """Keep a view of the files in which nothing below /sys is executed; gives its process."""
    words = ["unshare", "--mount", "sh", "-c", RESTRICTED]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"there\n"
        yield holder.pid
        holder.communicate()


@pytest.fixture
def restricted_engine(host):
    class RestrictedEngine(EngineProcess):
        def command(self, name):
            return ["nsenter", "--target", str(host), "--mount", *super().command(name)]

    engine = RestrictedEngine()
    engine.start()
    yield engine
    engine.remove()


async def test_restricted_host__noexec_sys_works(restricted_engine):
    async with await AsyncSandbox.create(**restricted_engine.options) as sandbox:
        told = await sandbox.commands.run("cat /sys/devices/system/cpu/online")
        assert told.stdout.strip()
