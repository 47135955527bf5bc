"""Servers in sandboxes, reached from outside at the host names that the unmodified SDK gives."""

import asyncio

import httpx
import pytest
import websockets
from e2b import AsyncSandbox

from tests.engine.engine_process import REPOSITORY
from tests.engine.memory_growth import MIB, grows_by_less_than
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

GUESTS = REPOSITORY / "tests/engine/guests"
BOUND = {8000: "0.0.0.0", 8001: "127.0.0.1", 8002: "::1"}
ECHOING = {8100: "0.0.0.0", 8101: "127.0.0.1", 8102: "::1"}
SCRIPTS = {"request_reporter.py": BOUND, "echo_server.py": ECHOING}
AWAIT_LISTENERS = "until [ $(ss -Hltn | grep -c ':8[01]0[012] ') = {} ]; do sleep 0.02; done"
UNKNOWN = "i0000000000000000000"
BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Accept": "text/html"}


@pytest.fixture(scope="module")
def serving(shared_sync):
    """Have servers run in the shared sandbox; gives its id."""
    for script, bound in SCRIPTS.items():
        shared_sync.files.write(script, (GUESTS / script).read_text())
        for port, address in bound.items():
            serve = f"python3 {script} {address} {port}"
            shared_sync.commands.run(serve, background=True, timeout=0)
    shared_sync.commands.run(AWAIT_LISTENERS.format(6))
    return shared_sync.sandbox_id


@pytest.fixture
async def hosting(sandbox):
    """Have servers run in a sandbox that the test may end."""
    await sandbox.files.write("seen", "-1")
    for script, port in (("request_reporter.py", 8000), ("echo_server.py", 8100)):
        await sandbox.files.write(script, (GUESTS / script).read_text())
        serve = f"python3 {script} 0.0.0.0 {port}"
        await sandbox.commands.run(serve, background=True, timeout=0)
    await sandbox.commands.run(AWAIT_LISTENERS.format(2))
    return sandbox


def _websocket(engine, sandbox, port):
    return websockets.connect(
        f"ws://{sandbox.get_host(port)}/", host="127.0.0.1", port=engine.port, max_size=None
    )


@pytest.mark.parametrize("port", BOUND)
async def test_ports__server_on_any_address_is_reached(browse, serving, port):
    async with browse(serving, port) as client:
        told = (await client.get("/a%2Fb/ü?q=%20&q=+&empty")).json()
        assert told["path"] == "/a%2Fb/%C3%BC?q=%20&q=+&empty"
        for method in ("POST", "PUT", "DELETE"):
            told = (await client.request(method, "/", content=b"12345")).json()
            assert (told["method"], told["received"]) == (method, "5")


async def test_ports__headers_can_name_the_target(engine, serving):
    routed = {"E2b-Sandbox-Id": serving, "E2b-Sandbox-Port": "8001"}
    async with httpx.AsyncClient(base_url=engine.url, headers=routed, timeout=60) as client:
        assert (await client.get("/by-headers")).json()["path"] == "/by-headers"


async def test_ports__application_sees_the_public_host(browse, shared, serving):
    async with browse(serving, 8000) as client:
        told = (await client.get("/", headers={"X-Forwarded-For": "203.0.113.1"})).json()
    headers = {name.lower(): value for name, value in told["headers"]}
    assert headers["host"] == shared.get_host(8000)
    assert not {name for name in headers if name.startswith(("x-forwarded", "forwarded", "via"))}


async def test_ports__engine_credentials_are_hidden(browse, engine, shared, serving):
    token = shared._envd_access_token
    secrets = {"X-API-Key": engine.api_key, "X-Access-Token": token}
    async with browse(serving, 8000) as client:
        told = (await client.get("/", headers=secrets)).text
        assert engine.api_key not in told
        assert token not in told
        own = {"X-API-Key": "the application's own", "X-Access-Token": "this, too"}
        told = (await client.get("/", headers=own)).json()
    assert {"the application's own", "this, too"} <= {value for _, value in told["headers"]}


@pytest.mark.parametrize("port", ECHOING)
async def test_ports__websocket_server_on_any_address_is_reached(engine, shared, serving, port):
    async with _websocket(engine, shared, port) as websocket:
        for message in ("text \N{SNOWMAN}", b"\0\xff", "", b"x" * MIB):
            await websocket.send(message)
            assert await websocket.recv() == message
        await websocket.close(4321, "enough")
    assert (websocket.close_code, websocket.close_reason) == (4321, "enough")


async def test_ports__events_arrive_immediately(browse, hosting):
    async with (
        browse(hosting.sandbox_id, 8000) as client,
        client.stream("GET", "/events") as stream,
    ):
        assert stream.headers["content-type"] == "text/event-stream"
        events = stream.aiter_lines()
        for number in range(5):  # the next is only sent when this one was seen
            assert await anext(events) == f"data: {number}"
            assert await anext(events) == ""
            await hosting.files.write("seen", str(number))


async def test_ports__large_bodies_use_constant_memory(browse, engine, serving):
    async def pieces():
        for _ in range(64):
            yield bytes(MIB)

    headers = {"Content-Length": str(64 * MIB)}
    async with browse(serving, 8000) as client:
        with grows_by_less_than(20 * MIB, pid=engine.pid):
            told = (await client.post("/", content=pieces(), headers=headers)).json()
            async with client.stream("GET", "/large") as stream:
                received = sum([len(piece) async for piece in stream.aiter_raw()])
    assert (told["received"], received) == (str(64 * MIB), 64 * MIB)


@pytest.mark.slow  # loads the machine
async def test_ports__many_clients_and_ports_are_served(browse, serving):
    async def ask(number):
        async with browse(serving, 8000 + number % 3) as client:
            return (await client.get(f"/{number}")).json()["path"]

    asked = await asyncio.gather(*(ask(number) for number in range(90)))
    assert asked == [f"/{number}" for number in range(90)]


async def test_ports__closed_port_answers_like_e2b(browse, shared):
    async with browse(shared.sandbox_id, 3210) as client:
        answer = await client.get("/")
        page = await client.get("/", headers=BROWSER)
    assert answer.status_code == page.status_code == 502
    assert answer.json() == {
        "sandboxId": shared.sandbox_id,
        "message": "The sandbox is running but port is not open",
        "port": 3210,
        "code": 502,
    }
    assert page.headers["content-type"].startswith("text/html")
    assert "3210" in page.text


async def test_ports__unknown_sandbox_answers_like_e2b(browse, options):
    dead = await AsyncSandbox.create(timeout=60, **options)
    await dead.kill()
    for sandbox_id in (dead.sandbox_id, UNKNOWN):
        async with browse(sandbox_id, 8000) as client:
            answer = await client.get("/")
            page = await client.get("/", headers=BROWSER)
        assert answer.status_code == page.status_code == 502
        assert answer.json() == {
            "sandboxId": sandbox_id,
            "message": "The sandbox was not found",
            "code": 502,
        }
        assert page.headers["content-type"].startswith("text/html")


async def test_ports__paused_sandbox_is_unreachable_until_resumed(browse, hosting):
    async with browse(hosting.sandbox_id, 8000) as client:
        assert (await client.get("/")).status_code == 200
        await hosting.pause()
        refused = await client.get("/")
        assert (refused.status_code, refused.json()["message"]) == (
            502,
            "The sandbox was not found",
        )
        await hosting.connect(timeout=60)
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("end", ["kill", "pause"])
async def test_ports__end_of_a_sandbox_cuts_connections(browse, engine, hosting, end):
    async with (
        browse(hosting.sandbox_id, 8000) as client,
        client.stream("GET", "/events") as stream,
        _websocket(engine, hosting, 8100) as websocket,
    ):
        pieces = stream.aiter_raw()
        assert await anext(pieces) == b"data: 0\n\n"
        await getattr(hosting, end)()
        async with asyncio.timeout(5):
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
            with pytest.raises(websockets.ConnectionClosedError):
                await websocket.recv()


async def test_ports__invalid_port_is_a_bad_request(browse, shared):
    for port in ("0", "65536", "99999999999999999999", "http", "-1", ""):
        async with browse(shared.sandbox_id, port) as client:
            assert (await client.get("/")).status_code == 400, port


async def test_ports__reserved_endpoints_are_blocked(browse, shared):
    async with browse(shared.sandbox_id, 49983) as client:
        for path in ("/init", "/freeze", "/unfreeze"):
            assert (await client.post(path, json={})).status_code == 404


@pytest.mark.parametrize("whose", ["the API's", "a port's", "the files'"])
async def test_ports__header_of_10_mb_is_rejected(engine, shared, serving, whose):
    port = {"a port's": "8000-", "the files'": "49983-"}.get(whose)
    host = "localhost" if port is None else f"{port}{shared.sandbox_id}.localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nX-Large: ".encode() + b"x" * 10_000_000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
    writer.transport.abort()
    assert (await shared.commands.run("echo fine")).stdout == "fine\n"


async def test_ports__late_server_is_reached_by_retries(browse, sandbox):
    async with browse(sandbox.sandbox_id, 9000) as client:
        assert (await client.get("/")).status_code == 502
        serve = "python3 -m http.server 9000 --bind 127.0.0.1 --directory /etc"
        await sandbox.commands.run(serve, background=True, timeout=0)

        async def page():
            answer = await client.get("/hostname")
            return answer.status_code == 200

        await until(page)
