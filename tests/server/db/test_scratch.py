import asyncio
import os
import signal
import sys
from pathlib import Path

from sandbox_server.db.postmaster import is_running

TIMEOUT_S = 60

SESSION = """
import sys, time
from sandbox_server.db.embedded import EmbeddedPostgres
from tests.server.support.scratch_directory import scratch_directory

with scratch_directory() as directory:
    EmbeddedPostgres(directory / "postgres").start()
    print(directory, flush=True)
    time.sleep(600)
"""


async def test_scratch_directory__a_killed_test_session_leaves_no_server_and_no_files():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SESSION),
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout
    directory = Path((await process.stdout.readline()).decode().strip())
    data = directory / "postgres/data"
    assert is_running(data)
    os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()
    async with asyncio.timeout(TIMEOUT_S):
        while directory.exists():  # noqa: ASYNC110 - the keeper is nobody's child any more
            await asyncio.sleep(0.01)
    assert not is_running(data)
