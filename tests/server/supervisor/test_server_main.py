import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_server.db.embedded import ACCOUNT
from sandbox_server.supervisor.process_handle import ProcessHandle, ProcessIdentity
from tests.server.support.server_process import server_process

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give it up")


def status_of(pid, field):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


async def test_first_start__prints_the_admin_key_once_and_keeps_it_private(started):
    assert started.admin_key in started.said
    assert (started.state_dir / "admin.key").stat().st_mode & 0o777 == 0o600
    async with started.client() as admin:
        assert (await admin.get("/v1/nothing")).status_code == 404  # so it has been let in
    first = started.admin_key
    assert started.stop() == 0
    started.start()
    assert started.admin_key == first
    assert first not in started.said


@as_root
def test_privileges__the_serving_process_is_not_root_and_cannot_become_it(running):
    (serving,) = running.children
    assert status_of(running.pid, "Uid")[0] == "0"
    assert "0" not in status_of(serving, "Uid") + status_of(serving, "Gid")
    assert status_of(serving, "Groups") == []
    assert status_of(serving, "CapPrm") == status_of(serving, "CapEff") == ["0" * 16]
    assert status_of(serving, "NoNewPrivs") == ["1"]


@as_root
def test_privileges__the_database_runs_as_the_servers_account(running):
    (serving,) = running.children
    data = running.state_dir / "postgres" / "data"
    assert str(data.stat().st_uid) == status_of(serving, "Uid")[0]
    assert data.owner() == ACCOUNT


@as_root
def test_privileges__the_servers_account_may_write_mirrors(running):
    (serving,) = running.children
    mirrors = (running.state_dir / "mirrors").stat()
    assert str(mirrors.st_uid) == status_of(serving, "Uid")[0]
    assert mirrors.st_mode & 0o777 == 0o700


@as_root
def test_serve__no_part_of_a_killed_server_holds_its_port(started):
    (pid,) = started.children
    serving = ProcessHandle.find(ProcessIdentity.of(pid))
    assert serving is not None
    started.kill()
    started.start()  # on the same port
    assert serving.has_ended(timedelta())
    os.close(serving.fileno())


@as_root
def test_serve__ends_with_its_serving_process_and_starts_again(started):
    (serving,) = started.children
    os.kill(serving, signal.SIGKILL)
    assert started.wait() == 128 + signal.SIGKILL
    started.start()


def test_serve__one_server_per_state_directory(running):
    second = running.run("serve", "--port", "0")
    assert second.returncode == 78
    assert f"Another server (pid {running.pid}) is using {running.state_dir}" in second.stderr
    assert "Traceback" not in second.stderr


def test_serve__a_port_in_use_is_named(running):
    port = running.url.rpartition(":")[2]
    with server_process(variables=running.variables) as second:
        refused = second.run("serve", "--port", port)
    assert refused.returncode == 78
    assert refused.stderr.startswith(f"Port {port} of 127.0.0.1 is in use. Choose another --port.")


def test_stop__leaves_no_process(started):
    assert started.stop() == 0
    assert not (started.state_dir / "postgres" / "data" / "postmaster.pid").exists()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_stop__at_each_stop_signal(started, number):
    os.kill(started.pid, number)
    assert started.wait() == 0


def test_settings__an_invalid_one_is_named_with_its_variable(server):
    refused = server.run("serve", "--port", "many")
    assert refused.returncode == 2
    assert "SANDBOX_SERVER_PORT" in refused.stderr
    assert "many" not in refused.stderr.rpartition("error:")[2]
