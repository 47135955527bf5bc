import asyncio
import contextlib
import time

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    NotEnoughSpaceException,
    SandboxException,
    SandboxState,
)

from sandbox_engine.container import cgroups
from tests.engine.engine_process import running_engine
from tests.engine.output_collector import Heard
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

MIB = 1 << 20
PIDS = 64
QUICK_S = 3

MEMORY_BOMB = "exec python3 -c 'hoard = [bytearray(1 << 20) for _ in range(500)]'"
FILL_MEMORY = "head -c 200M /dev/zero > /dev/shm/one; head -c 200M /dev/zero > /dev/two"
# Every process forks as fast as it can, tries again when it may not, and ends when told to.
FORK_BOMB = """
import os, time
print("lit", flush=True)
while not os.path.exists("/home/user/stop"):
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def tight_engine():
    """Run an engine whose sandboxes may use little."""
    limits = ("--disk-mb", "64", "--memory-mb", "128", "--pids", str(PIDS))
    with running_engine(*limits, "--pool-size", "4") as engine:
        yield engine


@pytest.fixture
async def tight(tight_engine):
    """Create a sandbox that may use little."""
    sandbox = await AsyncSandbox.create(timeout=120, **tight_engine.options)
    yield sandbox
    with contextlib.suppress(SandboxException):
        await sandbox.kill()


@pytest.fixture
async def neighbour(tight_engine):
    """Create a sandbox that must not notice what another one does."""
    async with await AsyncSandbox.create(timeout=120, **tight_engine.options) as sandbox:
        yield sandbox


@contextlib.asynccontextmanager
async def unmoved(engine, neighbour):
    """Have the engine and a neighbour answer quickly, again and again, while the block runs."""
    is_over = asyncio.Event()
    times: list[float] = []

    async def ask():
        async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
            while not is_over.is_set() or len(times) < 5:
                started = time.monotonic()
                assert (await client.get("/health")).json() == {"status": "ok"}
                assert (await neighbour.commands.run("echo well")).stdout == "well\n"
                await neighbour.files.write("note", "well")
                times.append(time.monotonic() - started)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        is_over.set()
        await asking
    assert max(times) < QUICK_S


# Memory


async def test_limits__memory_bomb_is_killed_with_the_reason(tight, tight_engine, neighbour):
    async with unmoved(tight_engine, neighbour):
        for _ in range(5):
            with pytest.raises(CommandExitException) as caught:
                await tight.commands.run(MEMORY_BOMB)
            assert caught.value.exit_code == -1
            assert caught.value.error == (
                "signal: killed (out of memory: the sandbox reached its memory limit)"
            )
    assert (await tight.commands.run("echo usable")).stdout == "usable\n"
    assert (await tight.get_info()).state is SandboxState.RUNNING


async def test_limits__memory_bomb_below_a_shell_is_reported(tight):
    with pytest.raises(CommandExitException) as caught:
        await tight.commands.run(f"({MEMORY_BOMB}); exit $?")
    assert caught.value.exit_code == 137
    assert caught.value.error is not None
    assert "out of memory" in caught.value.error
    with pytest.raises(CommandExitException) as later:
        await tight.commands.run("exit 137")
    assert later.value.error == "exit status 137"


async def test_limits__full_tmpfs_is_usable_after_removal(tight):
    with pytest.raises(CommandExitException):
        await tight.commands.run(f"{FILL_MEMORY}; exit 1", user="root")
    for path in ("/dev/shm/one", "/dev/two"):
        await tight.files.remove(path, user="root")
    assert (await tight.commands.run("echo usable")).stdout == "usable\n"


async def test_limits__out_of_memory_init_keeps_the_files(tight, tight_engine, neighbour):
    await tight.files.write("kept", "on disk")
    async with unmoved(tight_engine, neighbour):
        with pytest.raises(SandboxException):
            await tight.commands.run(
                f"echo 1000 > /proc/1/oom_score_adj; {FILL_MEMORY}; exit 1", user="root"
            )
        await until(lambda: _is_paused(tight))
        assert "out of memory" in await tight_engine.state_reason(tight)
    await tight.connect(timeout=60)
    assert await tight.files.read("kept") == "on disk"
    assert (await tight.commands.run("echo usable")).stdout == "usable\n"


# Processes


async def test_limits__fork_bomb_stops_at_the_limit(tight, tight_engine, neighbour):
    await _light(tight, tight_engine)
    async with unmoved(tight_engine, neighbour):
        with contextlib.suppress(SandboxException):
            await tight.commands.run("true", timeout=2)
        assert len(_processes(tight_engine, tight)) <= PIDS + 2  # what joins is not held to it
        await tight.files.write("stop", "")
        await until(lambda: _is_burnt_out(tight_engine, tight))
    assert (await tight.commands.run("echo usable")).stdout == "usable\n"


async def test_limits__fork_bombed_sandbox_is_killed(tight, tight_engine):
    await _light(tight, tight_engine)
    started = time.monotonic()
    assert await tight.kill()
    assert time.monotonic() - started < QUICK_S
    assert not _processes(tight_engine, tight)


async def test_limits__fork_bombed_sandbox_can_be_paused(tight, tight_engine):
    await _light(tight, tight_engine)
    assert await tight.pause()
    await tight.connect(timeout=60)
    assert len(_processes(tight_engine, tight)) > PIDS // 2


# Disk


async def test_limits__full_disk_is_a_clear_error(tight, tight_engine, neighbour):
    await tight.files.write("old", "as it was")
    async with unmoved(tight_engine, neighbour):
        with pytest.raises(CommandExitException, match="No space left on device") as caught:
            await tight.commands.run("head -c 100M /dev/urandom > big; exit $?")
        assert caught.value.exit_code == 1
        assert 40 * MIB < (await tight.files.get_info("big")).size < 64 * MIB
        for path in ("old", "new"):
            with pytest.raises(NotEnoughSpaceException):
                await tight.files.write(path, "x" * MIB)
        assert await tight.files.read("old") == "as it was"
        assert not await tight.files.exists("new")
        with pytest.raises(CommandExitException, match="No space left on device"):
            await tight.commands.run("head -c 1M /dev/urandom > more; exit $?")

    await tight.files.remove("big")
    await tight.files.write("old", "x" * MIB)
    await tight.commands.run("head -c 10M /dev/urandom > more")


async def test_limits__missing_inodes_are_reported(tight):
    await tight.files.write("old", "as it was")
    with pytest.raises(CommandExitException, match="No space left on device"):
        await tight.commands.run(
            "mkdir many; for i in $(seq 10000); do : > many/$i || exit 1; done"
        )
    with pytest.raises(NotEnoughSpaceException):
        await tight.files.write("new", "text")
    await tight.files.write("old", "changed")
    assert await tight.files.read("old") == "changed"
    await tight.commands.run("rm -r many")
    await tight.files.write("new", "text")


# Processor


@pytest.mark.slow  # loads all processors for seconds
async def test_limits__busy_sandboxes_starve_nobody(tight, tight_engine, neighbour):
    spinning = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"
    async with await AsyncSandbox.create(timeout=60, **tight_engine.options) as other:
        for sandbox in (tight, other):
            await sandbox.commands.run(spinning, background=True, timeout=0)
        async with unmoved(tight_engine, neighbour):
            for _ in range(3):
                assert (await tight.commands.run("echo also here")).stdout == "also here\n"


async def _light(sandbox, engine):
    heard = Heard()
    await sandbox.files.write("bomb.py", FORK_BOMB)
    await sandbox.commands.run("exec python3 bomb.py", background=True, timeout=0, on_stdout=heard)
    await heard.wait_for(b"lit\n")

    async def is_at_the_limit():
        return len(_processes(engine, sandbox)) > PIDS - 4

    await until(is_at_the_limit)


def _processes(engine, sandbox):
    return cgroups.processes(f"sandbox-engine-{engine.instance}/{sandbox.sandbox_id}")


async def _is_burnt_out(engine, sandbox):
    return len(_processes(engine, sandbox)) == 1


async def _is_paused(sandbox):
    return (await sandbox.get_info()).state is SandboxState.PAUSED
