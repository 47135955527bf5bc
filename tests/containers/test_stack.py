"""In the order in which an operator does these things: the stack is one, and takes a while to start."""

from pathlib import Path

import pytest

from tests.containers.stack import CACHE, SERVICES, await_true, running_stack

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def stack():
    with running_stack() as stack:
        yield stack


@pytest.fixture(scope="module")
def client(stack):
    said = stack.inside("server", "sandbox-server", "keys", "create", "--scope", "sandboxes")
    with stack.client(said.split()[-1]) as client:
        yield client


@pytest.fixture(scope="module")
def sandbox_id(client):
    made = client.post("/v1/sandboxes", json={"template": "base"})
    assert made.status_code == 201, made.text
    return made.json()["id"]


@pytest.fixture
def sandbox(client, sandbox_id):
    def run(command, **options):
        asked = {"cmd": command, **options}
        ran = client.post(f"/v1/sandboxes/{sandbox_id}/commands", json=asked)
        assert ran.is_success, ran.text
        assert ran.json()["exit_code"] == (None if options else 0), ran.text
        return ran.json()["stdout"]

    return run


@pytest.fixture
def found_paused(client, sandbox_id):
    """Wait until the server knows what became of the sandbox, for which it looks every half a minute."""

    def wait():
        found = f"/v1/sandboxes/{sandbox_id}"
        await_true(lambda: client.get(found).json()["state"] == "paused")

    return wait


def test_compose__a_sandbox_created_through_the_published_port_runs_commands(sandbox):
    sandbox("echo kept >notes.txt; sync")
    assert sandbox("cat notes.txt") == "kept\n"


def test_compose__a_sandbox_resolves_names_but_reaches_neither_database_nor_server(stack, sandbox):
    assert "nameserver" in sandbox("cat /etc/resolv.conf")
    for service, port in (("server", 8100), ("engine", 3400)):
        addresses = stack.inside(service, "hostname", "-I").split()
        for address in addresses:
            shut = f"timeout 2 bash -c '</dev/tcp/{address}/{port}' 2>&1 || echo shut"
            assert sandbox(shut).endswith("shut\n")


def test_compose__the_server_is_unprivileged_and_sees_only_the_engines_key(stack):
    assert stack.inside("server", "id", "--user") == "8100\n"
    assert stack.inside("server", "ls", "/var/lib/sandbox-engine-key") == "api.key\n"
    assert "CapEff:\t0000000000000000" in stack.inside("server", "cat", "/proc/1/status")


def test_compose__processes_in_sandboxes_survive_a_killed_engine(stack, sandbox):
    sandbox("sleep 1000", background=True)
    assert sandbox("pgrep --exact sleep")
    stack.inside("engine", "pkill", "--signal", "KILL", "--full", "bin/sandbox-engine serve")
    stack.await_healthy("engine")
    assert sandbox("pgrep --exact sleep")


def test_compose__a_killed_server_restarts_with_its_sandboxes(stack, sandbox):
    stack.kill("server")
    stack.await_healthy("server")
    assert sandbox("pgrep --exact sleep")


def test_compose__a_stopped_server_exits_cleanly(stack, sandbox):
    stack.stop("server")
    assert stack.inspect("server", "{{.State.ExitCode}}") == "0"
    stack.start("server")
    assert sandbox("pgrep --exact sleep")


def test_compose__down_and_up_keep_sandboxes_with_their_files(stack, found_paused, sandbox):
    stack.down()
    stack.up()
    found_paused()
    assert sandbox("cat notes.txt") == "kept\n"


def test_compose__a_killed_engine_container_keeps_sandboxes_with_their_files(
    stack, found_paused, sandbox
):
    stack.kill("engine")
    stack.await_healthy("engine")
    found_paused()
    assert sandbox("cat notes.txt") == "kept\n"


def test_compose__down_with_volumes_leaves_nothing(stack):
    stack.remove()
    assert not any(stack.exists(service) for service in SERVICES)
    assert not [one for one in loop_devices() if str(CACHE) in one]
    assert str(CACHE / "volumes") not in Path("/proc/self/mountinfo").read_text()


def loop_devices():
    return [one.read_text() for one in Path("/sys/block").glob("loop*/loop/backing_file")]
