"""Envd as programs in a sandbox reach it, at 127.0.0.1:49983."""

import json

import pytest
from e2b import CommandExitException, Sandbox

from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

ENVD = "http://localhost:49983"

# Opens connections, prints a line, and holds them until its input ends.
HOLD = """
import socket, sys
held = []
for _ in range(int(sys.argv[1])):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", 49983))
    held.append(one)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared_sync(engine):
    envs = {"COLOUR": "blü"}
    with Sandbox.create(timeout=600, envs=envs, **engine.options) as sandbox:
        yield sandbox


async def curl(sandbox, *arguments):
    """Return the body and the status."""
    command = " ".join(("curl -s -m 30 -w '\\n%{http_code}'", *arguments))
    try:
        body, _, status = (await sandbox.commands.run(command)).stdout.rpartition("\n")
    except CommandExitException as error:
        return "", f"curl {error.exit_code}"
    return body, status


async def test_loopback__health_and_envs_need_no_token(shared):
    assert await curl(shared, f"{ENVD}/health") == ("", "204")
    body, status = await curl(shared, f"{ENVD}/envs")
    envs = json.loads(body)
    assert (status, envs["COLOUR"]) == ("200", "blü")
    assert envs["E2B_SANDBOX_ID"] == shared.sandbox_id


@pytest.mark.parametrize(
    "request_",
    [
        f"{ENVD}/metrics",
        f"-X POST {ENVD}/envs",
        f"{ENVD}/files?path=/etc/passwd",
        f"-X POST -H 'content-type: application/json' -d '{{}}' {ENVD}/process.Process/List",
        f"-H 'Host: rebound.example' {ENVD}/envs",
        f"-H 'Origin: http://evil.example' {ENVD}/envs",
        f"-H 'X-Access-Token: wrong' {ENVD}/metrics",
        f"-H 'E2b-Sandbox-Id: other' {ENVD}/metrics",
    ],
)
async def test_loopback__other_requests_need_the_token(shared, request_):
    _, status = await curl(shared, request_)
    assert status == "401"


async def test_loopback__the_token_opens_everything_else(shared):
    token = f"-H 'X-Access-Token: {shared._envd_access_token}'"
    body, status = await curl(shared, token, f"{ENVD}/metrics")
    assert (status, json.loads(body)["cpu_count"] > 0) == ("200", True)
    written = f"-F file=@/etc/hostname '{ENVD}/files?path=/tmp/copied'"
    assert (await curl(shared, token, written))[1] == "200"
    assert await shared.files.exists("/tmp/copied")


async def test_loopback__the_hosts_port_is_not_the_engines(shared):
    """The engine's API is not behind the socket, whatever the request names."""
    for host in ("api.localhost", f"49983-{shared.sandbox_id}.localhost"):
        _, status = await curl(shared, f"-H 'Host: {host}' {ENVD}/sandboxes")
        assert status == "401"


async def test_loopback__answers_after_a_pause_with_memory_and_after_one_without(sandbox):
    for keep_memory in (True, False):
        await sandbox.pause(keep_memory=keep_memory)
        await sandbox.connect(timeout=120)
        assert (await curl(sandbox, f"{ENVD}/health"))[1] == "204"


async def test_loopback__held_connections_exhaust_only_the_sandboxs_own(sandbox, neighbour):
    async def holding():
        return "held" in "".join(said)

    said: list[str] = []
    holder = f"python3 -c '{HOLD}' 500"
    command = await sandbox.commands.run(holder, background=True, stdin=True, on_stdout=said.append)
    await until(holding)
    assert (await curl(sandbox, "-m 2", f"{ENVD}/health"))[1] == "curl 28"
    assert (await curl(neighbour, f"{ENVD}/health"))[1] == "204"
    assert (await sandbox.commands.run("echo up")).stdout == "up\n"
    await command.kill()
    assert (await curl(sandbox, f"{ENVD}/health"))[1] == "204"
