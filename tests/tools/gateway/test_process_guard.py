import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from sandbox_tools.gateway import process_guard
from tests.tools.gateway.processes import alive, until, until_gone

_STUBBORN = "trap : TERM INT HUP; "
_TREE = "(setsid sh -c '{trap} echo $$; while :; do sleep 1; done' &) ; {trap} echo $$; {then}"


async def guarded(log, script, *, parent=None):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", process_guard.__file__, str(parent or os.getpid()), str(log)),
        *("sh", "-c", script),
        stdin=PIPE,
        stdout=PIPE,
    )


async def two_pids(process):
    return [int(await process.stdout.readline()) for _ in range(2)]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "one.log"


async def test_process_guard__stdin_stdout_and_status_belong_to_the_command(log):
    process = await guarded(log, "read line; echo got $line; echo why >&2; exit 7")
    output, _ = await process.communicate(b"this\n")
    assert output == b"got this\n"
    assert process.returncode == 7
    assert log.read_text() == "why\n"


@pytest.mark.parametrize("trap", ["", _STUBBORN], ids=["willing", "stubborn"])
async def test_process_guard__ends_processes_that_the_command_left_behind(log, trap):
    process = await guarded(log, _TREE.format(trap=trap, then="read line"))
    pids = await two_pids(process)
    assert all(map(alive, pids))
    process.stdin.close()
    await process.wait()
    assert not any(map(alive, pids))


async def test_process_guard__sigterm_ends_all_processes(log):
    process = await guarded(log, _TREE.format(trap=_STUBBORN, then="sleep 600"))
    pids = await two_pids(process)
    process.send_signal(signal.SIGTERM)
    await process.wait()
    assert not any(map(alive, pids))


async def test_process_guard__ends_all_processes_when_the_parent_is_killed(log):
    parent = await asyncio.create_subprocess_exec("sleep", "600")
    process = await guarded(log, _TREE.format(trap="", then="sleep 600"), parent=parent.pid)
    pids = await two_pids(process)
    parent.kill()
    await until_gone(pids)
    await process.wait()
    await parent.wait()


async def test_process_guard__the_log_is_rotated_at_its_maximum_size(log):
    script = "i=0; while [ $i -lt 40 ]; do head -c 65536 /dev/zero >&2; i=$((i + 1)); done"
    process = await guarded(log, script)
    await process.wait()
    assert log.stat().st_size <= 1 << 20
    assert log.with_suffix(".log.1").stat().st_size <= 1 << 20


async def test_process_guard__runs_without_a_writable_log(tmp_path):
    process = await guarded(tmp_path / "nowhere/one.log", "echo noise >&2; echo ran")
    output, _ = await process.communicate()
    assert (output, process.returncode) == (b"ran\n", 0)


async def test_process_guard__does_not_write_the_log_through_a_symlink(tmp_path, log):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    log.symlink_to(victim)
    process = await guarded(log, "echo noise >&2")
    await process.wait()
    assert victim.read_text() == "mine"


async def test_process_guard__starts_nothing_when_the_parent_has_ended(log, tmp_path):
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    await until(lambda: not alive(gone.pid))
    process = await guarded(log, f"touch {tmp_path}/ran", parent=gone.pid)
    assert await process.wait() == 0
    assert not (tmp_path / "ran").exists()
