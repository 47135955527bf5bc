import asyncio
import hashlib
import time
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox

from tests.engine import leftovers
from tests.engine.bare_container import descriptors, keeper_pid
from tests.engine.engine_process import running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

MIB = 1 << 20


@pytest.fixture
async def quiet_sandbox():
    """Create a sandbox on an engine whose descriptors nobody else changes."""
    with running_engine() as engine:
        async with await AsyncSandbox.create(timeout=300, **engine.options) as sandbox:
            yield sandbox, engine


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_command_load__two_thousand_short_commands_leave_nothing(quiet_sandbox):
    sandbox, engine = quiet_sandbox
    keeper = keeper_pid(Path("/run/sandbox-engine") / engine.instance / "keeper")

    async def held():
        return (
            len(descriptors(engine.pid)),
            len(descriptors(keeper)),
            _children(keeper),
            leftovers.count(engine)["commands"],
            len(await sandbox.commands.list()),
        )

    async def run_commands(worker, count):
        for number in range(count):
            word = f"{worker}-{number}"
            result = await sandbox.commands.run(f"echo {word}; exit 0")
            assert (result.stdout, result.stderr) == (f"{word}\n", "")

    await asyncio.gather(*(run_commands(worker, 10) for worker in range(20)))  # opens connections
    before = await held()
    await asyncio.gather(*(run_commands(worker, 90) for worker in range(20)))

    async def nothing_more_is_held():
        return all(now <= then for now, then in zip(await held(), before, strict=True))

    await until(nothing_more_is_held)


async def test_command_load__stalled_reader_gets_fifty_megabytes_and_delays_nobody(sandbox, engine):
    size = 50 * MIB
    script = f"head -c {size} /dev/urandom | base64 -w 0 | tee >(sha256sum > sum); touch written"
    is_stalled, go_on = asyncio.Event(), asyncio.Event()
    digest, length = hashlib.sha256(), 0

    async def read(data):
        nonlocal length
        digest.update(data.encode())
        length += len(data)
        is_stalled.set()
        await go_on.wait()

    command = await sandbox.commands.run(
        script, background=True, on_stdout=read, retain_output=False
    )
    await is_stalled.wait()
    await until(lambda: sandbox.files.exists("written"))
    assert any(str(engine.state_dir) in one for one in descriptors(engine.pid) if "deleted" in one)
    slowest = 0.0
    for _ in range(20):
        started = time.monotonic()
        assert (await sandbox.commands.run("echo here")).stdout == "here\n"
        assert await sandbox.files.exists("sum")
        slowest = max(slowest, time.monotonic() - started)
    assert slowest < 2
    assert length < size

    go_on.set()
    assert (await command.wait()).exit_code == 0
    assert length == -(-size // 3) * 4
    assert (await sandbox.files.read("sum")).split()[0] == digest.hexdigest()


def test_command_load__stalled_sync_reader_gets_everything(engine):
    with Sandbox.create(timeout=60, **engine.options) as sandbox:
        command = sandbox.commands.run("seq 2000000; touch written", background=True)
        other = Sandbox.connect(sandbox.sandbox_id, **engine.options)
        while not other.files.exists("written"):
            time.sleep(0.02)
        expected = "".join(f"{number}\n" for number in range(1, 2_000_001))
        assert command.wait().stdout == expected


async def test_command_load__unread_flood_is_cheap(sandbox, engine):
    command = await sandbox.commands.run("yes", background=True, timeout=0)
    await command.disconnect()
    used = _cpu_seconds(engine.pid)
    started = time.monotonic()
    for _ in range(10):
        assert (await sandbox.commands.run("sleep 0.2; echo here")).stdout == "here\n"
    elapsed = time.monotonic() - started
    assert elapsed < 6
    assert (_cpu_seconds(engine.pid) - used) / elapsed < 0.6
    await command.kill()


def _children(pid):
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
