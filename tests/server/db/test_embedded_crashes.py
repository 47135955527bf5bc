import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

import asyncpg
import pytest

from sandbox_server.db.embedded import EmbeddedPostgres
from tests.server.support.scratch_directory import postmaster_pid

TIMEOUT_S = 60
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are told by /proc")

STARTER = """
import sys, time
from pathlib import Path
from sandbox_server.db.embedded import EmbeddedPostgres

programs = Path(sys.argv[2]) if sys.argv[2:] else None
print(EmbeddedPostgres(Path(sys.argv[1]), programs=programs).start(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def data(directory):
    return directory / "data"


@pytest.fixture
async def start_process(scratch):
    """Start processes that start the server and then wait."""
    started = []

    async def start(*arguments):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", STARTER, scratch / "postgres", *arguments),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def url_of(process):
    async with asyncio.timeout(TIMEOUT_S):
        return (await process.stdout.readline()).decode().strip()


async def wait_until(condition):
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - files and processes send no event
            await asyncio.sleep(0.01)


async def test_embedded_postgres__outlives_its_starter_and_is_adopted(
    postgres, data, start_process
):
    process = await start_process()
    connection = await asyncpg.connect(await url_of(process))
    pid = postmaster_pid(data)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    postgres.start()
    assert postmaster_pid(data) == pid
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_embedded_postgres__concurrent_starts_start_one_server(start_process):
    urls = {await url_of(process) for process in [await start_process() for _ in range(3)]}
    assert len(urls) == 1
    connection = await asyncpg.connect(urls.pop())
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@pytest.mark.parametrize("made", ["password", "data.new/global", "data/start.log"])
async def test_embedded_postgres__a_start_interrupted_by_a_crash_is_finished_by_the_next(
    start_process, scratch, made
):
    process = await start_process()
    await wait_until((scratch / "postgres" / made).exists)
    process.kill()
    await process.wait()
    postgres = EmbeddedPostgres(scratch / "postgres")
    connection = await asyncpg.connect(await asyncio.to_thread(postgres.start))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@ON_LINUX
async def test_embedded_postgres__initdb_holds_the_lock_after_its_starter_died(
    start_process, scratch
):
    slow = scratch / "programs"
    slow.mkdir(mode=0o755)
    (slow / "initdb").write_text("#!/bin/sh\nexec sleep 600\n")
    (slow / "initdb").chmod(0o755)
    process = await start_process(slow)
    await wait_until((scratch / "postgres/data.new").exists)
    (initdb,) = await wait_for_children(process)
    process.kill()
    await process.wait()
    lock = os.open(scratch / "postgres", os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)
        os.kill(initdb, signal.SIGKILL)
    url = await asyncio.to_thread(EmbeddedPostgres(scratch / "postgres").start)
    await (await asyncpg.connect(url)).close()


async def wait_for_children(process):
    """Find the programs that a process runs, as soon as they are what it wanted to run."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def running():
        pids = children.read_text().split()
        return [int(p) for p in pids if Path(f"/proc/{p}/comm").read_text() == "sleep\n"]

    await wait_until(running)
    return running()


@ON_LINUX
async def test_embedded_postgres__committed_rows_survive_a_kill(postgres, data):
    connection = await asyncpg.connect(postgres.start())
    await connection.execute("CREATE TABLE kept AS SELECT 'here' AS word")
    survivor = connection.get_server_pid()
    os.kill(survivor, signal.SIGSTOP)
    os.kill(postmaster_pid(data), signal.SIGKILL)
    start = asyncio.create_task(asyncio.to_thread(postgres.start))
    await asyncio.wait({start}, timeout=1)  # time enough to be refused because of the survivor
    os.kill(survivor, signal.SIGCONT)
    again = await asyncpg.connect(await start)
    assert await again.fetchval("SELECT word FROM kept") == "here"
    await again.close()
    await wait_until(connection.is_closed)


@ON_LINUX
async def test_embedded_postgres__a_reused_pid_is_not_mistaken_for_the_server(
    postgres, directory, data
):
    postgres.start()
    notes = [data / "postmaster.pid", directory / "socket/.s.PGSQL.5432.lock"]
    texts = [note.read_text() for note in notes]
    account = data.stat().st_uid
    postgres.stop()
    as_account = {"user": account} if os.geteuid() == 0 else {}
    stranger = await asyncio.create_subprocess_exec("sleep", "600", cwd=data, **as_account)
    try:
        for note, text in zip(notes, texts, strict=True):
            note.write_text("\n".join([str(stranger.pid), *text.splitlines()[1:], ""]))
        connection = await asyncpg.connect(postgres.start())
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
    finally:
        stranger.kill()
        await stranger.wait()
