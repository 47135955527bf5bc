"""From the creation of sandboxes to their end."""

import json
import signal

import pytest

from sandbox_client import AsyncSandboxClient
from sandbox_client.protocol.address import API_KEY

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def narrow_key(server):
    """Make a key of a tenant that may have one sandbox at a time."""
    async with AsyncSandboxClient(server.url, server.admin_key) as admin:
        await admin.put_tenant("narrow-for-sbx", max_running=1)
        return (await admin.create_key(tenant="narrow-for-sbx")).secret


@pytest.fixture
async def narrow(server, narrow_key):
    async with AsyncSandboxClient(server.url, narrow_key) as client:
        yield client


async def test_sbx__sandbox_from_create_to_rm(sbx, tmp_path):
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"docs": {"command": "true"}}}')
    made = sbx(
        *("create", "--template", "base", "--name", "one\x1b[2J", "--session", "s-1"),
        *("--metadata", "team=core", "-e", "MODE=test", "--timeout", "2h", "--idle", "15m"),
        *("--mcp-servers", "mcp.json"),
    )
    assert (made.returncode, made.stderr) == (0, "")
    sandbox_id = made.stdout.strip()
    listed = sbx("ls", "--metadata", "team=core").stdout
    assert listed.splitlines()[1].startswith(f"{sandbox_id}  one\\x1b[2J  running")
    shown = sbx("show", "s-1").stdout
    assert "in 1 h 59 min" in shown
    assert "idle pause at" in shown
    assert "team=core" in shown
    assert "sandbox.running" in shown
    assert "\x1b" not in listed + shown
    assert sbx("exec", sandbox_id[-6:], "echo $MODE").stdout == "test\n"
    assert sbx("rm", sandbox_id, "s-1").returncode == 0
    assert json.loads(sbx("--json", "ls", "--metadata", "team=core").stdout) == []
    assert "stopped" in sbx("ls", "--all", "--metadata", "team=core").stdout


def test_sbx_create__an_unavailable_capability_is_an_error(sbx):
    done = sbx("create", "--capability", "mcp", "--capability", "no-such")
    assert done.returncode == 1
    assert "No template has the capabilities mcp, no-such." in done.stderr


def test_lifecycle_verbs__error_with_one_sandbox_does_not_stop_the_others(sbx, web):
    done = sbx("--json", "pause", "missing", web)
    assert done.returncode == 1
    problem = json.loads(done.stderr)
    assert (problem["code"], problem["sandbox"]) == ("sandbox-not-found", "missing")
    assert sbx("resume", web).stdout.strip() == web


def test_sbx__similar_sandbox_name_is_suggested(sbx, web):
    done = sbx("show", "workshap")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Sandbox 'workshap' not found. Did you mean workshop?" in done.stderr


async def test_create__queued_sandbox_shows_its_position_and_is_deleted_on_timeout(
    sit, start, narrow, narrow_key
):
    environment = {API_KEY: narrow_key}
    async with await narrow.create_sandbox(template="base"):
        with sit("create", "--template", "base", env=environment) as person:
            person.see("\r\x1b[KPosition 1 in the queue:")
            person.type("\x03")
            assert person.end() == 130
        with start("create", "--template", "base", "--wait", "0.1s", env=environment) as process:
            assert b"Position 1 in the queue:" in process.stderr.readline()
            assert b"Timed out waiting" in process.stderr.read()
            assert process.wait(60) == 1
        assert len([one async for one in narrow.list_sandboxes()]) == 1


async def test_run__deletes_the_sandbox_however_it_ends(sbx, sit, narrow, narrow_key):
    environment = {API_KEY: narrow_key}

    async def left():
        return [one.id async for one in narrow.list_sandboxes()]

    create = ("run", "--template", "base", "-e", "A=a")
    done = sbx(*create, "--timeout", "60", "-i", "--", "cat; echo $A", stdin=b"b", env=environment)
    assert (done.stdout, done.stderr, done.returncode) == ("ba\n", "", 0)
    assert await left() == []
    with sit(*create, "--", "echo ready; sleep 100", env=environment) as person:
        person.see("ready")
        person.type("\x03")
        assert person.end() == 128 + signal.SIGINT
    assert await left() == []
    with sit(*create, "--", "echo ready; sleep 100", env=environment) as person:
        person.see("ready")
        person.program.send_signal(signal.SIGHUP)
        assert person.end() == 128 + signal.SIGHUP
    assert await left() == []
    kept = sbx(*create, "--keep", "--", "exit 3", env=environment)
    assert kept.returncode == 3
    assert [kept.stderr.split()[-1].rstrip(".")] == await left()


def test_create__repository_that_was_not_added(sbx):
    done = sbx("create", "--template", "base", "--repository", "acme/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert "acme/none" in done.stderr
    done = sbx("create", "--repository", "acme/none", "--push")
    assert "--push needs --branch" in done.stderr
    assert "need --repository" in sbx("create", "--branch", "x").stderr
