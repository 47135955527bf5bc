"""The door to the git endpoint, from inside sandboxes of a real engine."""

import time

import pytest
from e2b import AsyncSandbox, CommandExitException

from sandbox_http.origin import verify_origin
from tests.engine.engine_process import EngineProcess
from tests.engine.git.recording_server import recording_server

pytestmark = pytest.mark.needs_engine

REFS = "/git/github.com/acme/widgets/info/refs?service=git-upload-pack"

# Sends raw requests, which curl would correct, and prints the status of each.
RAW = r"""
import socket, sys
for request in sys.stdin.read().split("\n---\n"):
    with socket.create_connection(("git.sandbox", 80), timeout=10) as door:
        door.sendall(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        print(door.recv(4096).split(b" ")[1].decode())
"""


@pytest.fixture(scope="module")
def server():
    with recording_server() as server:
        yield server


@pytest.fixture(scope="module")
def engine(server):
    """Run an engine whose sandboxes reach the recording server."""
    engine = EngineProcess("--git-server", server.url, "--pool-size", "1")
    engine.start()
    yield engine
    engine.remove()


@pytest.fixture
async def sandbox(engine, server):
    server.requests.clear()
    async with await AsyncSandbox.create(timeout=120, **engine.options) as sandbox:
        yield sandbox


async def curl(sandbox, *arguments):
    command = " ".join(("curl -s -m 10 -w '%{http_code}'", *arguments))
    try:
        return (await sandbox.commands.run(command)).stdout
    except CommandExitException as error:
        return f"curl {error.exit_code}"


def origin_of(request, engine):
    return verify_origin(
        engine.api_key,
        request.headers["sandbox-origin"].encode(),
        method=request.method,
        target=request.target.encode(),
        now=time.time(),
    )


async def test_git_door__the_server_learns_which_sandbox_asks(sandbox, engine, server):
    async with await AsyncSandbox.create(timeout=120, **engine.options) as other:
        assert await curl(sandbox, f"'http://git.sandbox{REFS}'") == "git\n200"
        assert await curl(other, f"'http://git.sandbox{REFS}'") == "git\n200"
    senders = [origin_of(request, engine) for request in server.requests]
    assert senders == [sandbox.sandbox_id, other.sandbox_id]
    assert {request.target for request in server.requests} == {REFS}


async def test_git_door__forged_headers_and_credentials_do_not_pass(sandbox, engine, server):
    forged = (
        "-H 'Sandbox-Origin: other;1;aa' -H 'sandbox_origin: x' -H 'Cookie: a=b' "
        "-H 'X-API-Key: e2b_1' -H 'Authorization: Bearer x' -H 'X-Forwarded-For: 1.2.3.4' "
        "-H 'Git-Protocol: version=2'"
    )
    assert await curl(sandbox, forged, f"'http://git.sandbox{REFS}'") == "git\n200"
    (request,) = server.requests
    assert origin_of(request, engine) == sandbox.sandbox_id
    assert request.headers["git-protocol"] == "version=2"
    assert set(request.headers) <= {
        "accept",
        "git-protocol",
        "host",
        "sandbox-origin",
        "user-agent",
    }


async def test_git_door__bodies_are_passed_on_chunked_or_not(sandbox, server):
    place = "'http://git.sandbox/git/github.com/acme/widgets/git-receive-pack'"
    assert await curl(sandbox, "--data-binary 0000", place) == "git\n200"
    big = "head -c 3000000 /dev/zero | curl -s -m 20 -T - -X POST -H 'Transfer-Encoding: chunked' "
    assert (await sandbox.commands.run(big + place)).stdout == "git\n"
    assert [len(request.body) for request in server.requests] == [4, 3_000_000]


REFUSED = (
    "GET /v1/sandboxes HTTP/1.1\nHost: git.sandbox",
    "GET / HTTP/1.1\nHost: git.sandbox",
    "GET /git/../v1/sandboxes/x/y HTTP/1.1\nHost: git.sandbox",
    "GET /git/./v1/sandboxes/x HTTP/1.1\nHost: git.sandbox",
    "GET /git/%2e%2e/v1/sandboxes/x HTTP/1.1\nHost: git.sandbox",
    "GET /git//v1/sandboxes/x HTTP/1.1\nHost: git.sandbox",
    "GET /git/a/b/c%0d%0aX-API-Key:1 HTTP/1.1\nHost: git.sandbox",
    "GET http://169.254.169.254/latest/meta-data/a HTTP/1.1\nHost: 169.254.169.254",
    "DELETE /git/github.com/acme/widgets HTTP/1.1\nHost: git.sandbox",
    "GET /git/a/b/c HTTP/1.1\nHost: git.sandbox\nConnection: Upgrade\nUpgrade: websocket",
)


async def test_git_door__serves_nothing_but_git(sandbox, server):
    await sandbox.files.write("/tmp/raw.py", RAW)
    await sandbox.files.write("/tmp/requests", "\n---\n".join(REFUSED))
    answers = (await sandbox.commands.run("python3 /tmp/raw.py < /tmp/requests")).stdout.split()
    assert answers == ["404"] * len(REFUSED)
    assert server.requests == []


async def test_git_door__is_open_to_a_sandbox_without_internet(engine, server):
    offline = await AsyncSandbox.create(timeout=120, allow_internet_access=False, **engine.options)
    async with offline:
        assert await curl(offline, f"'http://git.sandbox{REFS}'") == "git\n200"
        gateway = (await offline.commands.run("getent ahostsv4 git.sandbox")).stdout.split()[0]
        assert await curl(offline, f"http://{gateway}:{engine.port}/health") == "000curl 7"[3:]


async def test_git_door__requests_of_a_sandbox_are_limited(sandbox, server):
    hold = (
        "import socket, time\n"
        "held = [socket.create_connection(('git.sandbox', 80)) for _ in range(17)]\n"
        "for one in held:\n"
        "    one.sendall(b'POST /git/a/b/c HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 9\\r\\n\\r\\n')\n"
        "    time.sleep(0.05)\n"
        "print(held[-1].recv(4096).split(b' ')[1].decode())\n"
    )
    await sandbox.files.write("/tmp/hold.py", hold)
    assert (await sandbox.commands.run("python3 /tmp/hold.py")).stdout == "503\n"


async def test_git_door__server_away(engine, server, tmp_path):
    away = EngineProcess("--pool-size", "1")
    away.start()
    try:
        async with await AsyncSandbox.create(timeout=120, **away.options) as sandbox:
            assert (await curl(sandbox, f"'http://git.sandbox{REFS}'"))[-3:] == "503"
            (away.state_dir / "git-server").write_text("http://127.0.0.1:9")
            assert (await curl(sandbox, f"'http://git.sandbox{REFS}'"))[-3:] == "503"
            (away.state_dir / "git-server").write_text(server.url)
            assert (await curl(sandbox, f"'http://git.sandbox{REFS}'"))[-3:] == "200"
    finally:
        away.remove()
