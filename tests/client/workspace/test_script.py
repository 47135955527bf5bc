"""`docker/sandbox/start-e2b-sandbox.sh` on a machine where no server runs."""

import os
import select
import signal
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_server.supervisor.state_directory import find_server
from tests.ports import free_port
from tests.server.support.server_process import STOP_TIMEOUT_S, server_process

pytestmark = pytest.mark.needs_engine

SCRIPT = Path(__file__).parents[3] / "docker/sandbox/start-e2b-sandbox.sh"


@contextmanager
def script_at(server, home):
    """Give the script for a server with this state, which ends with the block if the script starts it."""
    environment = {
        **server.environment(),
        "SANDBOX_SERVER_STATE_DIR": str(server.state_dir),
        "SANDBOX_SERVER_URL": f"http://127.0.0.1:{free_port()}",
        "HOME": str(home),
    }

    def script(*words, **variables):
        command = [str(SCRIPT), *words]
        return subprocess.run(
            command,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    try:
        yield script
    finally:
        if (pid := find_server(server.state_dir)) is not None:
            ended = os.pidfd_open(pid)
            os.kill(pid, signal.SIGTERM)
            assert select.select([ended], [], [], STOP_TIMEOUT_S)[0]
            os.close(ended)


@pytest.mark.slow  # starts a server from nothing
def test_start_script__starts_a_server_and_creates_a_key_and_a_sandbox(project, home):
    (project / "x.txt").write_text("x")
    with server_process() as server, script_at(server, home) as script:
        started = script(str(project), "--no-shell")
        assert started.returncode == 0, started.stderr
        assert "no server is running" in started.stderr
        assert "to the sandbox: app.py, x.txt" in started.stderr
        file = home / ".config/sandbox-server/client.toml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        pid = find_server(server.state_dir)
        again = script("status", str(project))
        assert again.returncode == 0, again.stderr
        assert again.stderr.endswith("is running\n")
        assert find_server(server.state_dir) == pid
        deleted = script("delete", str(project))
        assert deleted.returncode == 0, deleted.stderr


def test_start_script__does_not_start_a_remote_server(project, home):
    with server_process() as server, script_at(server, home) as script:
        done = script(str(project), SANDBOX_SERVER_URL="http://sandboxes.invalid")
        assert done.returncode == 1
        assert done.stderr.endswith("The server at http://sandboxes.invalid does not answer.\n")
        assert find_server(server.state_dir) is None


def test_start_script__help_starts_nothing(home):
    with server_process() as server, script_at(server, home) as script:
        assert "e2b-sandbox.config.json" in script("--help").stdout
        assert find_server(server.state_dir) is None
