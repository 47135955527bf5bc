import asyncio
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sandbox_engine.keeper.client import Keeper, KeeperLost
from tests.engine.bare_container import (
    descriptors,
    keeper_pid,
    keeper_pids,
    scratch_dir,
)
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def run_dir():
    with scratch_dir() as directory:
        yield directory / "run"


@pytest.fixture
async def keeper(run_dir):
    keeper = await Keeper.connect(run_dir)
    yield keeper
    await keeper.close()


async def test_keeper__program_gets_input_and_returns_output(keeper):
    script = "tr a-z A-Z; echo problem >&2; exit 7"
    completed = await keeper.run(["sh", "-c", script], stdin=b"hello")
    assert (completed.returncode, completed.stdout, completed.stderr) == (7, b"HELLO", b"problem\n")


async def test_keeper__large_input_and_output_pass(keeper):
    data = os.urandom(5 << 20)
    completed = await keeper.run(["cat"], stdin=data)
    assert completed.stdout == data


async def test_keeper__signalled_program_has_a_negative_status(keeper):
    completed = await keeper.run(["sh", "-c", "kill -9 $$"])
    assert completed.returncode == -signal.SIGKILL


async def test_keeper__program_end_ignores_children_holding_the_output(keeper):
    async with asyncio.timeout(5):
        completed = await keeper.run(["sh", "-c", "sleep 30 & echo $!"])
    os.kill(int(completed.stdout), signal.SIGKILL)


async def test_keeper__program_timeout_kills(keeper):
    with pytest.raises(TimeoutError, match="sleep did not end within"):
        await keeper.run(["sleep", "30"], timeout=0.1)


async def test_keeper__missing_program_is_an_error(keeper):
    with pytest.raises(OSError, match="no-such-program"):
        await keeper.run(["no-such-program"])
    assert (await keeper.run(["true"])).returncode == 0


async def test_keeper__too_long_message_is_rejected(keeper):
    with pytest.raises(ValueError, match="too long"):
        await keeper.run(["echo", "x" * 100_000])
    assert (await keeper.run(["true"])).returncode == 0


async def test_keeper__programs_run_concurrently(keeper):
    started = time.monotonic()
    await asyncio.gather(*(keeper.run(["sleep", "0.3"]) for _ in range(20)))
    assert time.monotonic() - started < 3


async def test_keeper__programs_do_not_inherit_the_keeper_state(keeper, monkeypatch):
    completed = await keeper.run(["sh", "-c", "grep SigIgn /proc/self/status; env"])
    ignored = int(completed.stdout.split()[1], 16)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored & 1 << (number - 1)
    assert b"SANDBOX_ENGINE" not in completed.stdout


async def test_keeper__no_zombies_or_descriptors_are_left(keeper, run_dir):
    await keeper.run(["true"])
    pid = keeper_pid(run_dir)
    before = descriptors(pid)
    await asyncio.gather(*(keeper.run(["sh", "-c", "true & true"]) for _ in range(50)))
    assert descriptors(pid) == before
    children = (await keeper.run(["ps", "--ppid", str(pid), "-o", "stat="])).stdout
    assert b"Z" not in children


async def test_keeper__concurrent_engines_start_one_keeper(run_dir):
    program = "import asyncio, sys; from pathlib import Path;"
    program += "from sandbox_engine.keeper.client import Keeper;"
    program += "asyncio.run(Keeper.connect(Path(sys.argv[1])))"
    engines = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, run_dir)
        for _ in range(4)
    ]
    await asyncio.gather(*(engine.wait() for engine in engines))
    assert len(keeper_pids(run_dir)) == 1


async def test_keeper__survives_hangup_and_interrupt(keeper, run_dir):
    await keeper.run(["true"])
    pid = keeper_pid(run_dir)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        os.kill(pid, number)
    assert (await keeper.run(["true"])).returncode == 0
    assert keeper_pid(run_dir) == pid


async def test_keeper__later_engine_replaces_the_earlier_one(keeper, run_dir):
    running = asyncio.create_task(keeper.run(["sleep", "10"]))
    await keeper.run(["true"])
    later = await Keeper.connect(run_dir)
    with pytest.raises(KeeperLost):
        await running
    assert (await later.run(["true"])).returncode == 0
    assert len(keeper_pids(run_dir)) == 1
    await later.close()


async def test_keeper__crash_fails_running_calls_and_the_next_starts_another(keeper, run_dir):
    running = asyncio.create_task(keeper.run(["sleep", "10"]))
    await keeper.run(["true"])
    first = keeper_pid(run_dir)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(KeeperLost):
        await running
    answers = await asyncio.gather(*(keeper.run(["echo", "back"]) for _ in range(5)))
    assert {answer.stdout for answer in answers} == {b"back\n"}
    assert keeper_pids(run_dir) == [keeper_pid(run_dir)] != [first]


async def test_keeper__unused_keeper_ends(run_dir):
    keeper = await Keeper.connect(run_dir)
    pid = keeper_pid(run_dir)
    pidfd = os.pidfd_open(pid)
    await keeper.close()
    ended, _, _ = await asyncio.to_thread(select.select, [pidfd], [], [], 15)
    os.close(pidfd)
    assert ended
    assert not (run_dir / "keeper.sock").exists()


@pytest.mark.slow  # waits until a keeper ends
async def test_keeper__keeper_with_children_stays(run_dir):
    keeper = await Keeper.connect(run_dir)
    left = await keeper.run(["sh", "-c", "sleep 30 >/dev/null & echo $!"])
    pidfd = os.pidfd_open(keeper_pid(run_dir))
    await keeper.close()
    ended, _, _ = await asyncio.to_thread(select.select, [pidfd], [], [], 4.5)
    assert not ended, "it left an orphan"
    os.kill(int(left.stdout), signal.SIGKILL)
    ended, _, _ = await asyncio.to_thread(select.select, [pidfd], [], [], 15)
    os.close(pidfd)
    assert ended


async def test_keeper__only_root_can_connect(keeper, run_dir):
    assert run_dir.stat().st_mode & 0o777 == 0o700
    (run_dir / "keeper.sock").chmod(0o777)
    run_dir.chmod(0o711)
    client = "import os, socket, sys; os.setgid(65534); os.setuid(65534);"
    client += "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
    client += "s.connect(sys.argv[1]); sys.exit(len(s.recv(100)))"
    program = [sys.executable, "-I", "-c", client, run_dir / "keeper.sock"]
    stranger = await asyncio.create_subprocess_exec(*program)
    assert await stranger.wait() == 0, "it was greeted"
    assert (await keeper.run(["true"])).returncode == 0


@pytest.mark.slow  # waits until a keeper ends
async def test_keeper__removed_directory_does_not_affect_the_next_keeper(run_dir):
    first = await Keeper.connect(run_dir)
    await first.close()
    [pid] = keeper_pids(run_dir)
    shutil.rmtree(run_dir)
    second = await Keeper.connect(run_dir)

    async def is_alone() -> bool:
        return pid not in keeper_pids(run_dir)

    await until(is_alone)
    assert (run_dir / "keeper.sock").is_socket()
    await second.close()


# An engine whose systemd unit has `NoNewPrivileges`: it has the keeper run a script, and ends.
RESTRICTED = """
import asyncio, sys
from pathlib import Path
from sandbox_engine.keeper.client import Keeper

async def run():
    keeper = await Keeper.connect(Path(sys.argv[1]))
    print((await keeper.run(["sh", "-c", sys.argv[2]])).stdout.decode())

asyncio.run(run())
"""


def run_restricted(run_dir, script):
    command = ["setpriv", "--no-new-privs", sys.executable, "-c", RESTRICTED, run_dir, script]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip(), keeper_pid(run_dir)


async def no_new_privileges(keeper):
    status = (await keeper.run(["cat", "/proc/self/status"])).stdout.decode()
    return re.findall(r"^NoNewPrivs:\t(\d)$", status, re.MULTILINE)


async def test_keeper__restricted_idle_keeper_is_replaced(run_dir):
    _, restricted = run_restricted(run_dir, "true")
    keeper = await Keeper.connect(run_dir)
    assert await no_new_privileges(keeper) == ["0"]
    assert keeper_pids(run_dir) == [keeper_pid(run_dir)] != [restricted]
    await keeper.close()


async def test_keeper__restricted_keeper_with_children_stays_and_is_reported(run_dir, caplog):
    child, restricted = run_restricted(run_dir, "sleep 60 >/dev/null & echo $!")
    keeper = await Keeper.connect(run_dir)
    assert await no_new_privileges(keeper) == ["1"]
    assert keeper_pids(run_dir) == [restricted]
    assert "under other restrictions than the engine" in caplog.text
    await keeper.close()
    os.kill(int(child), signal.SIGKILL)
