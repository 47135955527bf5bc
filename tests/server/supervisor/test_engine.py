import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from e2b import AsyncSandbox

from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.engine_note import NOTE
from sandbox_server.supervisor.process_handle import ProcessHandle
from tests.engine.polling import until
from tests.server.support.server_process import server_process

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def server():
    """Give a server with an engine of its own."""
    with server_process() as server:
        yield server


@pytest.fixture
def started(server):
    server.start()
    return server


def note_of(server):
    return LocalEngine(server.engine_dir).find_note()


def engine_of(server):
    """Find its engine, unless that has ended."""
    return ProcessHandle.find(note_of(server).identity)


async def create_sandbox(server):
    url = f"http://127.0.0.1:{note_of(server).port}"
    return await AsyncSandbox.create(
        api_key=(server.engine_dir / "api.key").read_text().strip(), api_url=url, sandbox_url=url
    )


def test_engine__only_it_is_root_with_its_own_files_and_session(started):
    assert started.engine_dir.stat().st_mode & 0o777 == 0o700
    assert started.engine_dir.stat().st_uid == 0
    assert os.getsid(started.engine_pid) == started.engine_pid
    owners = {pid: Path(f"/proc/{pid}").stat().st_uid for pid in started.children}
    assert owners.pop(started.engine_pid) == 0
    (serving,) = owners
    assert "Uid:\t0" not in Path(f"/proc/{serving}/status").read_text()


async def test_engine__one_left_by_a_crashed_server_runs_on_and_is_found_again(started):
    sandbox = await create_sandbox(started)
    before = note_of(started)
    started.kill()
    assert engine_of(started) is not None
    assert (await sandbox.commands.run("echo alive")).stdout == "alive\n"
    started.start()
    assert note_of(started) == before


@pytest.mark.slow  # waits for a port through several starts
async def test_engine__returns_to_its_port_once_that_is_free(started):
    sandbox = await create_sandbox(started)
    before = note_of(started)
    os.kill(before.pid, signal.SIGKILL)

    async def takes_port():
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", before.port))
        return None

    with await until(takes_port, timeout=10):
        log = started.engine_dir / "engine.log"

        async def complains():
            return "is taken" in log.read_text()

        await until(complains, timeout=60)

    async def answers():
        with suppress(httpx.TransportError):
            return await sandbox.is_running()
        return False

    await until(answers, timeout=60)
    assert note_of(started).port == before.port


async def test_engine__is_restarted_with_its_state_after_it_died(started):
    sandbox = await create_sandbox(started)
    before = note_of(started)
    os.kill(before.pid, signal.SIGKILL)

    async def is_another():
        return note_of(started).pid != before.pid

    await until(is_another, timeout=60)
    assert note_of(started).port == before.port

    async def answers():
        with suppress(httpx.TransportError):  # it does not listen yet
            return await sandbox.is_running()
        return False

    await until(answers, timeout=60)
    assert started.stop() == 0


@pytest.mark.slow  # one more start with an engine
def test_engine__a_stop_ends_it(started):
    assert started.stop() == 0
    assert engine_of(started) is None


@pytest.mark.slow  # two more starts
def test_engine__the_record_of_an_ended_one_is_ignored(server):
    server.engine_dir.mkdir(parents=True)
    note = {"pid": os.getpid(), "began": "another boot/1", "port": 3400, "log_at": 0}
    (server.engine_dir / NOTE).write_text(json.dumps(note))
    server.start()
    assert note_of(server).pid != os.getpid()
