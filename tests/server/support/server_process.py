"""The server as its users have it: started by its command, with all the processes that come of it."""

import base64
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile

import httpx

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.settings import Settings, variable_of
from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.engine_note import EngineNote
from sandbox_server.supervisor.process_handle import ProcessHandle
from tests import run_services
from tests.engine.engine_process import IMAGES, EngineProcess
from tests.listening_process import ListeningProcess
from tests.ports import free_port
from tests.server.support.scratch_directory import scratch_parent
from tests.server.support.server_forker import server_forker

STOP_TIMEOUT_S = 60
_PROGRAM = [sys.executable, "-m", "sandbox_server"]


class ServerProcess(ListeningProcess):
    """One server on a free port, with a state directory that outlives its processes.

    Without variables that name another provider it brings an engine of its own, and without one that names a database
    it has its own, a copy of the run's unless it is to make one.
    """

    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        *flags: str,
        variables: Mapping[str, str] | None = None,
        copies_database: bool = True,
    ) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch_parent()))
        self.directory.chmod(0o711)  # the account that it runs as has to get in
        self.state_dir = self.directory / "state"
        self._flags = flags
        self._copies_database = copies_database
        self.variables = dict(variables or {})
        self.program: list[str] = _PROGRAM
        self.account: int | None = None  # who starts it, if not whoever runs the tests
        self._port = free_port()
        self.said = ""
        self.url = ""

    @property
    def log_file(self) -> Path:
        return self.directory / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def admin_key(self) -> str:
        return (self.state_dir / "admin.key").read_text().strip()

    @property
    def engine_dir(self) -> Path:
        return self.state_dir / "engine"

    @property
    def engine_pid(self) -> int:
        note = LocalEngine(self.engine_dir).find_note()
        assert note is not None
        return note.pid

    @property
    def children(self) -> list[int]:
        """List the processes that it started itself and that are its own.

        Not by /proc/PID/task/PID/children, which misses some while processes start and end.
        """
        return [
            int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if self._began(stat)
        ]

    def _began(self, stat: Path) -> bool:
        with suppress(OSError):
            return int(stat.read_text().rpartition(")")[2].split()[1]) == self.pid
        return False

    def client(self, **options: object) -> httpx.AsyncClient:
        headers = {"X-API-Key": self.admin_key}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60, **options)  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        ours = {variable_of(name) for name in Settings.model_fields}
        inherited = {name: value for name, value in os.environ.items() if name not in ours}
        engine = {"IMAGES_DIR": str(IMAGES), "READY_SANDBOXES": "0"}
        return {
            **inherited,
            **{f"SANDBOX_ENGINE_{name}": value for name, value in engine.items()},
            "SANDBOX_SERVER_AGENT_TEMPLATE": "false",
            **self.variables,
        }

    def programs_at(self, source: Path) -> None:
        """Have it run the code that is there from now on."""
        self.variables["PYTHONPATH"] = str(source)

    def command(self, *words: str) -> list[str]:
        return [*self.program, *words, "--state-dir", str(self.state_dir)]

    @property
    def _can_be_forked(self) -> bool:
        return (
            self.program is _PROGRAM and self.account is None and "PYTHONPATH" not in self.variables
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another of its commands on the same state."""
        if self._can_be_forked:
            return self._run_forked(*words)
        return subprocess.run(
            self.command(*words),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _run_forked(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*words)
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            process = server_forker().run(
                command[len(_PROGRAM) :],
                environment=self.environment(),
                directory=Path.cwd(),
                out=out,
                err=err,
            )
            status = process.wait(60)
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(command, status, out.read(), err.read())

    def shell(self, command: str, *, cwd: Path) -> None:
        """Run a line that it printed for a shell."""
        subprocess.run(["sh", "-ec", command], cwd=cwd, check=True, timeout=60)

    def start(self, *flags: str) -> None:
        """Start it, on the port it had before, and wait until it listens."""
        self.launch(*flags)
        self.url = self._await_address()

    def _lend_cluster(self) -> None:
        """Copy a migrated database to where it would make one: that takes 3 s of a processor."""
        target = self.state_dir / "postgres"
        if self.account is not None or "DATABASE_URL" in self.variables or target.exists():
            return
        assert run_services.current is not None
        ready = run_services.current.service("cluster")["directory"]
        self.state_dir.mkdir(exist_ok=True)
        subprocess.run(["cp", "--archive", ready, target], check=True)

    def launch(self, *flags: str) -> None:
        """Begin a start, and wait for nothing."""
        if self._copies_database:
            self._lend_cluster()
        command = [*self.command("serve", "--port", str(self._port)), *self._flags, *flags]
        with self.log_file.open("a") as log:
            if self._can_be_forked:
                self._process = server_forker().start(
                    command[len(_PROGRAM) :],
                    environment=self.environment(),
                    directory=self.directory,
                    log=log,
                )
                return
            self._process = subprocess.Popen(
                command,
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.directory,
                user=self.account,
                group=self.account,
                extra_groups=None if self.account is None else [],
            )

    def _await_address(self) -> str:
        self.said = ""
        for line in self.output:
            self.said += line
            if line.startswith("  curl"):
                found = re.search(r"listening on (http://\S+)", self.said)
                assert found is not None
                return found[1]
        raise AssertionError(f"the server did not start:\n{self.said}{self.log}")

    def remove(self) -> None:
        """Stop all that is left of it and leave nothing behind."""
        if self.is_running:
            if self.account is None:
                self.kill()
            else:  # whose database none of us could stop
                self.stop()
        note = LocalEngine(self.engine_dir).find_note()
        if note is not None:
            self._remove_engine(note)
        if (self.state_dir / "postgres").exists():
            EmbeddedPostgres(self.state_dir / "postgres").stop()
        shutil.rmtree(self.directory)

    def _remove_engine(self, note: EngineNote) -> None:
        engine = ProcessHandle.find(note.identity)
        if engine is not None:
            with suppress(ProcessLookupError):
                os.kill(engine.identity.pid, signal.SIGKILL)
            assert engine.has_ended(timedelta(seconds=STOP_TIMEOUT_S))
        reset = [sys.executable, "-m", "sandbox_engine", "reset"]
        paths = ["--state-dir", str(self.engine_dir), "--images-dir", str(IMAGES)]
        subprocess.run([*reset, *paths], check=True, capture_output=True, timeout=120)


@contextmanager
def server_process(
    *flags: str, variables: Mapping[str, str] | None = None, copies_database: bool = True
) -> Iterator[ServerProcess]:
    """Give a server that is not started yet, gone with all that is its when the block ends."""
    server = ServerProcess(*flags, variables=variables, copies_database=copies_database)
    try:
        yield server
    finally:
        server.remove()


def variables_of(engine: EngineProcess, database_url: str) -> dict[str, str]:
    """Have a server use an engine and a database that are there."""
    return {
        "DATABASE_URL": database_url,
        "SANDBOX_SERVER_ENCRYPTION_KEYS": new_encryption_key(),
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
    }


def new_encryption_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()
