"""What the workers of one test run share: an engine, PostgreSQL servers, a migrated cluster.

The first worker that asks for a service starts its keeper, a process of its own. The controller holds the pipe `alive`,
which the kernel closes however the run ends; the keepers then stop their services.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
STOP_TIMEOUT_S = 120
MARK = "TEST_RUN_MARK"
"""A variable of every service, which no sandbox may see."""

_ALIVE = "alive"

Said = dict[str, str]


class Run:
    """One run of the tests, as each of its workers sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def service(self, name: str) -> Said:
        """Get what a service says of itself, and start it if no worker has."""
        note = self.directory / f"{name}.json"
        with _locked(self.directory / f"{name}.lock"):
            if not note.exists():
                self._start(name, note)
        said: Said = json.loads(note.read_text())
        return said

    def _start(self, name: str, note: Path) -> None:
        log_file = self.directory / f"{name}.log"
        with log_file.open("a") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.service_keeper", name, self.directory],
                cwd=REPOSITORY,
                env={**os.environ, MARK: "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the tests
            )
        while not note.exists():
            if keeper.poll() is not None:
                raise RuntimeError(f"{name} did not start:\n{log_file.read_text()}")
            time.sleep(0.02)
        keeper.returncode = 0  # it outlives this worker, so nobody waits for it here


class Controller(Run):
    """The run as the process sees it that begins and ends it."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="test-run-")))
        self.directory.chmod(0o711)
        os.mkfifo(self.directory / _ALIVE)
        self._alive = os.open(self.directory / _ALIVE, os.O_RDWR)

    def close(self) -> None:
        """Have the services stop, and wait until they have."""
        os.close(self._alive)
        for kept in self.directory.glob("*.kept"):
            with _locked(kept, within_s=STOP_TIMEOUT_S):
                pass
        shutil.rmtree(self.directory)


current: Run | None = None
"""The run that this process is part of."""


@contextmanager
def held(directory: Path, name: str) -> Iterator[Callable[[], object]]:
    """Have the controller wait for the block's end; gives what returns when the controller has closed the run."""
    alive = os.open(directory / _ALIVE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(alive, True)
    with _locked(directory / f"{name}.kept"):
        yield lambda: os.read(alive, 1)


def tell(directory: Path, name: str, said: Said) -> None:
    """Let the workers have a service that is ready."""
    unfinished = directory / f"{name}.new"
    unfinished.write_text(json.dumps(said))
    unfinished.rename(directory / f"{name}.json")


@contextmanager
def _locked(path: Path, *, within_s: float | None = None) -> Iterator[None]:
    with path.open("w") as file:
        _lock(file.fileno(), within_s)
        yield


def _lock(descriptor: int, within_s: float | None) -> None:
    if within_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    raise TimeoutError("a service of this run does not stop")
