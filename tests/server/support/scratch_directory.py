"""A directory in which PostgreSQL servers run; a process of its own, which ends when its stdin does.

However a test session ends, the kernel closes that pipe: the servers stop and the files go.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.db.postmaster import is_running

MEMORY = Path("/dev/shm")
ROOM = 2 << 30  # containers have 64 MB there unless they ask for more


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory that any account may enter, gone with the servers in it after the block."""
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for the tests
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            yield Path(keeper.stdout.readline().strip())
        finally:
            keeper.stdin.close()
    assert keeper.returncode == 0


def postmaster_pid(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().split()[0])


def scratch_parent() -> Path:
    """Choose memory where there is enough: a database has 1,000 files, and each test one of its own.

    To clone one takes 10 ms there and up to 200 ms on a disk.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        return MEMORY
    return Path("/tmp")


def _keep(directory: Path) -> None:
    directory.chmod(0o711)
    print(directory, flush=True)  # noqa: T201
    sys.stdin.read()
    for data in [note.parent for note in directory.rglob("postmaster.pid")]:
        _stop(data)
    shutil.rmtree(directory)


def _stop(data: Path) -> None:
    if is_running(data):
        os.kill(postmaster_pid(data), signal.SIGQUIT)
    while is_running(data):
        time.sleep(0.02)


if __name__ == "__main__":
    _keep(Path(tempfile.mkdtemp(prefix="pg-", dir=scratch_parent())))
