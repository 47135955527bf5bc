import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_engine.container.freezer import FreezeFailed, FreezerV1, FreezerV2
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

V1 = Path("/sys/fs/cgroup/freezer")
V2 = next(
    (
        one
        for one in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
        if (one / "cgroup.controllers").exists()
    ),
    None,
)

COUNTING = "import sys\nwhile True: sys.stdout.write('.'); sys.stdout.flush()"
FORKING = """
import os
while True:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    os.write(1, b".")
"""


@pytest.fixture(params=[FreezerV1, FreezerV2])
async def freezer(request):
    """Make a control group of either kind, where this machine has it."""
    root = V1 if request.param is FreezerV1 else V2
    if root is None or not root.is_dir():
        pytest.skip("this machine has no such control groups")
    directory = root / f"test-freezer-{os.getpid()}"
    directory.mkdir()
    yield request.param(directory)
    await until(lambda: _is_removed(directory))


@pytest.fixture
def start(freezer):
    """Start programs in the group."""
    started = []

    def start(program):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        started.append(process)
        (freezer.directory / "cgroup.procs").write_text(str(process.pid))
        return process

    yield start
    freezer.thaw()
    for process in started:
        process.kill()
        process.communicate()


async def test_freezer__frozen_processes_stop_until_thawed(freezer, start):
    counting = start(COUNTING)
    await until(lambda: _has_written(counting))
    await freezer.freeze()
    assert freezer.is_frozen()
    _drain(counting)
    assert not await _has_written(counting)
    freezer.thaw()
    assert not freezer.is_frozen()
    await until(lambda: _has_written(counting))


async def test_freezer__endlessly_forking_group_is_frozen(freezer, start):
    forking = [start(FORKING) for _ in range(4)]
    for _ in range(20):
        await freezer.freeze()
        assert freezer.is_frozen()
        for one in forking:
            _drain(one)
        await asyncio.sleep(0.03)
        assert not any([await _has_written(one) for one in forking])
        freezer.thaw()


async def test_freezer__cancelled_freeze_leaves_everything_running(freezer, start):
    counting = start(COUNTING)
    await until(lambda: _is_given_up(freezer))
    assert not freezer.is_frozen()
    await until(lambda: _has_written(counting))


async def test_freezer__missing_group_raises_with_the_reason(freezer):
    gone = type(freezer)(freezer.directory / "gone")
    with pytest.raises(FreezeFailed, match="No such file"):
        await gone.freeze()
    with pytest.raises(FreezeFailed, match="No such file"):
        gone.thaw()


async def _is_given_up(freezer):
    """Begin a freeze and cancel it; tells whether it was not over by then."""
    freezing = asyncio.create_task(freezer.freeze())
    await asyncio.sleep(0)
    freezing.cancel()
    await asyncio.wait([freezing])
    if not freezing.cancelled():
        freezer.thaw()
    return freezing.cancelled()


async def _has_written(process):
    return _drain(process) > 0


def _drain(process):
    """Read what there is, and tell how much."""
    return sum(len(process.stdout.read(1 << 16) or b"") for _ in range(8))


async def _is_removed(directory):
    with contextlib.suppress(OSError):  # its last process is on its way out
        directory.rmdir()
    return not directory.exists()
