import re

import httpx
import pytest

from sandbox_server.access.encryption import KEY_FILE
from tests.server.support.server_process import server_process


@pytest.fixture
def said(started):
    """Run a command beside the server; gives what it printed."""

    def run(*words):
        done = started.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def server_elsewhere(server):
    """Give another one, with a state directory of its own."""
    with server_process(variables=server.variables) as other:
        yield other


async def status_of_key(server, key):
    async with httpx.AsyncClient(
        base_url=server.url, headers={"X-API-Key": key}, timeout=60
    ) as caller:
        return (await caller.get("/v1/stats")).status_code


async def test_keys_command__a_created_key_is_valid_until_it_is_revoked(started, said):
    key = said("keys", "create", "--name", "an agent", "--scope", "read").strip()
    assert await status_of_key(started, key) == 200
    (line,) = re.findall(r"^.*an agent$", said("keys", "list"), re.MULTILINE)
    assert "read" in line
    assert "valid" in line
    assert key not in line
    said("keys", "revoke", line.split()[0])
    assert "revoked" in said("keys", "list")
    before = await status_of_key(started, key)
    while before == 200:  # known to every server within half a second
        before = await status_of_key(started, key)
    assert before == 401


def test_cli__commands_without_a_database_say_where_they_looked(server):
    refused = server.run("keys", "list")
    assert refused.returncode == 78
    assert f"No database in {server.state_dir}" in refused.stderr


def test_keys_command__an_unknown_tenant_is_refused(running):
    refused = running.run("keys", "create", "--tenant", "nobody")
    assert refused.returncode == 78
    assert refused.stderr == "There is no tenant 'nobody'.\n"


@pytest.mark.slow  # four commands, two starts
def test_db_check__works_with_and_without_a_running_server(started, said):
    said("db", "upgrade")
    assert "schema up to date, encryption keys complete" in said("db", "check")
    assert started.stop() == 0
    assert "sandboxes: none" in said("db", "check")
    data = started.state_dir / "postgres" / "data"
    assert not (data / "postmaster.pid").exists()  # left as it was found


@pytest.mark.slow
def test_db_downgrade__prepares_for_an_older_server_and_the_next_start_upgrades(started, said):
    assert "Another server" in started.run("db", "downgrade", "0010").stderr
    assert started.stop() == 0
    assert "Unknown schema revision '9999'" in started.run("db", "downgrade", "9999").stderr
    assert "The schema is now at 0010" in said("db", "downgrade", "0010")
    assert "older than this server" in started.run("db", "check").stdout
    started.start()
    assert "schema up to date" in said("db", "check")


def test_db_backup__the_printed_command_makes_a_backup(started, said, tmp_path):
    hint = said("db", "backup")
    assert str(started.state_dir / KEY_FILE) in hint
    (command,) = re.findall(r"^  (PGPASSWORD.*)$", hint, re.MULTILINE)
    started.shell(command, cwd=tmp_path)
    assert (tmp_path / "sandbox-server.dump").read_bytes().startswith(b"PGDMP")


@pytest.mark.slow
def test_db_rotate_encryption__is_refused_while_a_server_uses_the_old_key(started, said):
    key = (started.state_dir / KEY_FILE).read_text()
    assert "Another server" in started.run("db", "rotate-encryption").stderr
    assert (started.state_dir / KEY_FILE).read_text() == key
    assert started.stop() == 0
    said("db", "rotate-encryption")
    (new,) = (started.state_dir / KEY_FILE).read_text().split()
    assert new != key.strip()
    started.start()


@pytest.mark.slow  # three starts
def test_db_new_installation__separates_a_copied_database(started, said):
    def installation():
        (found,) = re.findall(r"installation (\w+)", said("db", "check"))
        return found

    before = installation()
    assert started.stop() == 0
    assert "0 sandboxes were detached" in said("db", "new-installation")
    assert installation() != before


def test_cli__an_unreachable_database_prints_no_traceback(server):
    server.variables["DATABASE_URL"] = "postgresql://me:hunter2@127.0.0.1:9/db"
    for words in (("serve", "--port", "0"), ("keys", "list"), ("db", "check")):
        refused = server.run(*words)
        assert refused.returncode == 78
        assert refused.stderr.startswith(
            "Cannot connect to PostgreSQL at 127.0.0.1:9 (DATABASE_URL): "
        )
        assert "hunter2" not in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file", "it is a file"),
        ("file/below", "Not a directory"),
        ("/proc/nothing", "No such file or directory"),
        ("/proc", "No such file or directory"),
    ],
)
def test_cli__an_unusable_state_directory_prints_no_traceback(server, tmp_path, place, reason):
    (tmp_path / "file").touch()
    server.state_dir = tmp_path / place
    refused = server.run("serve", "--port", "0")
    server.state_dir = server.directory / "state"
    assert refused.returncode == 78
    assert refused.stderr == (
        f"Cannot use the state directory {tmp_path / place}: {reason}. Set --state-dir or "
        "SANDBOX_SERVER_STATE_DIR to a directory that the server may write to.\n"
    )


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('[{"name": "hunter2", "api_key":', "is not valid JSON: Expecting value: line 1 column 32"),
        ("hunter2", "is not valid JSON: Expecting value: line 1 column 1"),
    ],
)
def test_cli__invalid_backends_print_no_traceback(server, written, problem):
    server.variables["SANDBOX_SERVER_BACKENDS"] = written
    refused = server.run("serve", "--port", "0")
    assert refused.returncode == 2
    assert f"error: SANDBOX_SERVER_BACKENDS {problem}" in refused.stderr
    assert "hunter2" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_doctor__finds_what_a_server_needs(server):
    told = server.run("doctor", "--port", "0")
    assert told.returncode == 0
    assert "ok    database: embedded" in told.stdout
    assert "ok    git: 2." in told.stdout
    assert told.stdout.endswith("\nThe server can run here.\n")
    assert not server.state_dir.exists()


def test_doctor__detects_the_running_server(running):
    told = running.run("doctor")
    assert told.returncode == 0
    assert f"in use by a server of this state directory (pid {running.pid})" in told.stdout


def test_doctor__names_each_problem(running, server_elsewhere):
    server_elsewhere.variables["DATABASE_URL"] = "postgresql://127.0.0.1:9/db"
    told = server_elsewhere.run("doctor", "--port", running.url.rpartition(":")[2])
    assert told.returncode == 78
    assert "MISS  port" in told.stdout
    assert "Choose another --port" in told.stdout
    assert "MISS  database: not usable" in told.stdout
    assert told.stdout.endswith("\nThe server cannot run here yet.\n")
