import contextlib
from pathlib import Path

import pytest
from e2b import AsyncSandbox

from sandbox_engine.container.cgroups import Cgroup
from sandbox_engine.machine.resources import MIB
from tests.engine.engine_process import running_engine
from tests.engine.output_collector import Heard
from tests.engine.polling import until
from tests.engine.swap_space import some_swap

pytestmark = pytest.mark.needs_engine

HOARDING = """
import hashlib, os, time
hoard = os.urandom(64 << 20)
digest = hashlib.sha256(hoard).hexdigest()
print("full", flush=True)
while not os.path.exists("/home/user/tell"):
    time.sleep(0.02)
print("whole" if hashlib.sha256(hoard).hexdigest() == digest else "broken", flush=True)
"""


@pytest.fixture(scope="module")
def engine():
    """Run an engine that gives memory back as soon as a sandbox is paused."""
    with some_swap(256 * MIB), running_engine("--return-memory-after-s", "0") as engine:
        yield engine


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
async def hoarding(engine, heard):
    """Create a sandbox with a program in it that holds 64 MiB."""
    async with await AsyncSandbox.create(timeout=300, **engine.options) as sandbox:
        await sandbox.files.write("hoard.py", HOARDING)
        await sandbox.commands.run(
            "exec python3 hoard.py", background=True, timeout=0, on_stdout=heard
        )
        await heard.wait_for(b"full\n")
        yield sandbox


def _cgroup(engine, sandbox):
    return Cgroup(f"sandbox-engine-{engine.instance}/{sandbox.sandbox_id}")


async def test_memory_reclaim__paused_memory_is_swapped_and_restored(engine, hoarding):
    cgroup = _cgroup(engine, hoarding)
    assert cgroup.usage().memory_used > 64 * MIB
    await hoarding.pause()

    async def is_returned():
        return cgroup.usage().memory_used < 8 * MIB

    await until(is_returned, timeout=60)
    assert cgroup.swapped() > 32 * MIB
    await hoarding.connect(timeout=300)
    await hoarding.files.write("tell", "")
    [hoard] = await hoarding.commands.list()
    told = Heard()
    await (await hoarding.commands.connect(hoard.pid, on_stdout=told, timeout=0)).wait()
    assert told.data == b"whole\n"


async def test_memory_reclaim__resume_cancels_the_reclaim(engine, hoarding):
    for _ in range(10):
        await hoarding.pause()
        await hoarding.connect(timeout=300)
    assert (await hoarding.commands.run("echo awake")).stdout == "awake\n"
    await until(lambda: _is_left_alone(_cgroup(engine, hoarding)))


async def _is_left_alone(cgroup):
    return not any(cgroup.path.encode() in line for line in _command_lines())


def _command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield path.read_bytes()
