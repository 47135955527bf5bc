"""What a program that works on foreign data can do: attacked from inside, as if it were taken over."""

import asyncio
import json
import os
import socket
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_engine.images.confinement import Confinement, OutputTooLong
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.scratch import Scratch
from sandbox_engine.machine.resources import MIB
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.errors import EngineError
from tests.engine.engine_process import REPOSITORY
from tests.engine.images.base_images import bases_in
from tests.engine.images.local_registry import needs_registry
from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(120)]

FETCHING = """
import asyncio, sys
from pathlib import Path
from tests.engine.images.base_images import bases_in

asyncio.run(bases_in(Path(sys.argv[1])).provide(sys.argv[2], report=print))
"""


@pytest.fixture
def confinement(tmp_path):
    """Lend a place to work in."""
    tmp_path.chmod(0o755)
    scratch = Scratch.fresh(tmp_path)
    work = scratch.path / "work"
    work.mkdir(mode=0o700)
    yield Confinement(
        scratch, work, DiskSpace(tmp_path, limit=64 * MIB, kept_free=0), timedelta(minutes=1)
    )
    scratch.discard()


@pytest.fixture
def inputs(tmp_path):
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "image").write_text("foreign")
    return inputs


@pytest.fixture
def silent_registry():
    """Listen where nobody ever answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def said_by(running):
    done = await running
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split()


async def test_confinement__fetching_program_is_unprivileged(confinement):
    status = "id -u; id -g; grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs)' /proc/self/status"
    said = await said_by(confinement.fetch("sh", "-c", status, stdout_limit=1000))
    assert [int(said[0]), int(said[1])] == [UID_BASE + 65536] * 2
    assert said[3:9:2] == ["0" * 16] * 3
    assert said[9] == "1"


async def test_confinement__program_sees_only_the_machine_programs(confinement, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    secret.chmod(0o644)
    script = f"ls /; cat {secret} /etc/passwd /etc/shadow; ls /root /home /var /run /sys; true"
    said = await said_by(confinement.fetch("sh", "-c", script, stdout_limit=10_000))
    assert set(said) <= {*"bin dev etc lib lib32 lib64 libx32 proc sbin usr work".split()}


async def test_confinement__program_writes_only_its_directory(confinement, inputs):
    script = (
        "for place in / /usr /etc /dev /inputs /proc/sys/kernel; do touch $place/mine; done;"
        "echo mine > /inputs/image; touch /work/mine"
    )
    done = await confinement.unpack("sh", "-c", script, inputs=inputs)
    assert done.stderr.count(b"cannot") == 7, done.stderr
    assert (inputs / "image").read_text() == "foreign"
    assert [path.name for path in confinement.work.iterdir()] == ["mine"]
    assert not Path("/usr/mine").exists()


async def test_confinement__unpacking_program_is_root_of_sandbox_ids_only(confinement, inputs):
    script = (
        "set -e; touch file; chown 5:6 file; chmod 4755 file;"
        "! mknod disk b 254 0; ! mount -t tmpfs none /work; ! hostname mine; ! unshare --net true"
    )
    done = await confinement.unpack("sh", "-c", script, inputs=inputs)
    assert done.returncode == 0, done.stderr
    status = (confinement.work / "file").stat()
    assert (status.st_uid, status.st_gid) == (UID_BASE + 5, UID_BASE + 6)
    assert [path.name for path in confinement.work.iterdir()] == ["file"]


async def test_confinement__unpacking_program_has_no_network(confinement, inputs):
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        dial = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        done = await confinement.unpack("/usr/bin/python3", "-c", dial, inputs=inputs)
    assert b"Network is unreachable" in done.stderr


async def test_confinement__program_sees_no_processes_and_no_descriptors(confinement):
    script = "ls /proc | grep -c '^[0-9]'; ls /proc/self/fd | wc -l; env"
    os.environ["SECRET_OF_THE_ENGINE"] = "hunter2"
    try:
        said = await said_by(confinement.fetch("sh", "-c", script, stdout_limit=10_000))
    finally:
        del os.environ["SECRET_OF_THE_ENGINE"]
    assert int(said[0]) <= 4  # the shell, ls, grep
    assert int(said[1]) <= 4  # three, and the listing itself
    assert not [line for line in said if "hunter2" in line or "PYTHONPATH" in line]


async def test_confinement__too_long_output_ends_the_program(confinement):
    with pytest.raises(OutputTooLong):
        await confinement.fetch("yes", stdout_limit=1000)


async def test_confinement__end_of_a_long_error_is_kept(confinement):
    script = "head -c 10000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 3"
    done = await confinement.fetch("sh", "-c", script)
    assert done.returncode == 3
    assert done.stderr.endswith(b"xend\n")
    assert len(done.stderr) <= MIB


async def test_confinement__timeout_ends_the_program_with_its_children(confinement):
    script = "(setsid sleep 1000 &) ; sleep 1000"
    place = Confinement(
        confinement.scratch, confinement.work, confinement.room, timedelta(seconds=1)
    )
    with pytest.raises(TimeoutError):
        await place.fetch("sh", "-c", script)
    assert not confined_processes(confinement.scratch.path)


def confined_processes(directory):
    """Find the processes that have this directory mounted, whichever namespace they are in."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        if f"{directory}/" in mounts:
            found.append(process.name)
    return found


@needs_registry
async def test_confinement__cancelled_fetch_leaves_nothing(tmp_path, silent_registry):
    fetch = asyncio.create_task(
        bases_in(tmp_path).provide(f"{silent_registry}/image", report=print)
    )
    await until(lambda: is_fetching(tmp_path), timeout=60)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert not confined_processes(tmp_path)
    assert not list((tmp_path / "building").iterdir())


@needs_registry
async def test_confinement__killed_engine_ends_its_fetches(tmp_path, silent_registry):
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FETCHING, tmp_path, f"{silent_registry}/image", cwd=REPOSITORY
    )
    await until(lambda: is_fetching(tmp_path), timeout=60)
    engine.kill()
    await engine.wait()
    store = bases_in(tmp_path).store

    async def is_clean() -> bool:
        await store.remove_unused(list)
        return not (confined_processes(tmp_path) or list((tmp_path / "building").iterdir()))

    await until(is_clean, timeout=60)


async def is_fetching(directory):
    return any(
        "skopeo" in (Path("/proc") / pid / "cmdline").read_text().split("\0")[0]
        for pid in confined_processes(directory)
    )


@needs_registry
async def test_confinement__malformed_registry_answer_has_a_short_message(tmp_path):
    async def answer(reader, writer):
        if await reader.read(1) == b"G":  # and not TLS, which is tried first
            is_greeting = b"/v2/ " in await reader.readline()
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" if is_greeting else refusal)
        writer.close()

    error = {"code": "DENIED", "message": "\x1b[31m" + "nonsense " * 50_000}
    body = json.dumps({"errors": [error]})
    refusal = f"HTTP/1.0 403 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(EngineError) as failure:
            await bases_in(tmp_path, insecure=address).provide(f"{address}/image", report=print)
    assert "nonsense" in str(failure.value)
    assert len(str(failure.value)) < 1500
    assert str(failure.value).isprintable()
