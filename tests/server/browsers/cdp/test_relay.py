"""The relay in front of a real Chromium."""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sandbox_server.domain.errors import SandboxPaused
from tests.chromium_process import listening_chromium
from tests.server.browsers.cdp.relay_server import LOST, RelayServer, relaying

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT = 30
MIB = 2**20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium():
    async with listening_chromium() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="module")
async def server(chromium):
    async with relaying(chromium.port) as server:
        yield server


def url_of(server: RelayServer, chromium) -> str:
    return f"ws://127.0.0.1:{server.port}{chromium.path}"


def attached(server, chromium, **options):
    return connect(url_of(server, chromium), max_size=None, open_timeout=WAIT, **options)


async def send(socket, method, *, message_id=1, **params):
    await socket.send(json.dumps({"id": message_id, "method": method, "params": params}))


async def ask(socket, method, *, message_id=1, **params):
    await send(socket, method, message_id=message_id, **params)
    async with asyncio.timeout(WAIT):
        while True:
            answer = json.loads(await socket.recv())
            if answer.get("id") == message_id:
                return answer


async def closing_of(socket):
    with suppress(ConnectionClosed):
        async with asyncio.timeout(WAIT):
            while True:
                await socket.recv()
    return socket.close_code, socket.close_reason


async def attached_by_hand(server, chromium, *, path=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        % (path or chromium.path).encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return writer


async def test_relay__playwright_drives_the_browser_and_its_close_leaves_it_running(
    server, chromium
):
    async with async_playwright() as playwright:
        for _ in range(2):
            browser = await playwright.chromium.connect_over_cdp(url_of(server, chromium))
            page = await browser.contexts[0].new_page()
            await page.goto("data:text/html,<title>there</title>")
            assert await page.title() == "there"
            await page.close()
            await browser.close()
    assert server.policy.told.count("connected") == 2
    assert chromium.process.returncode is None


async def test_relay__closing_the_browser_disconnects_only(server, chromium):
    async with attached(server, chromium) as socket:
        assert await ask(socket, "Browser.close") == {"id": 1, "result": {}}
        assert await closing_of(socket) == (1000, "The client closed the browser.")
    assert "close requested" not in server.policy.told
    async with attached(server, chromium) as socket:
        assert "result" in await ask(socket, "Browser.getVersion")


async def test_relay__closing_a_browser_that_is_not_kept_alive_is_requested_of_its_session(
    server, chromium
):
    server.policy.keep_alive = False
    async with attached(server, chromium) as socket:
        await ask(socket, "Browser.close")
        await closing_of(socket)
    assert "close requested" in server.policy.told


async def test_relay__a_crash_of_the_browser_is_refused(server, chromium):
    async with attached(server, chromium) as socket, attached(server, chromium) as other:
        refused = await ask(socket, "Browser.crash")
        assert "refused" in refused["error"]["message"]
        assert "result" in await ask(socket, "Browser.getVersion", message_id=2)
        assert "result" in await ask(other, "Browser.getVersion")


async def test_relay__a_page_that_crashes_its_renderer_harms_no_other_client(server, chromium):
    async with attached(server, chromium) as socket, attached(server, chromium) as other:
        made = await ask(socket, "Target.createTarget", url="about:blank")
        target = made["result"]["targetId"]
        await ask(socket, "Target.setDiscoverTargets", discover=True)
        session = await ask(socket, "Target.attachToTarget", targetId=target, flatten=True)
        crash = {
            "id": 9,
            "method": "Page.navigate",
            "params": {"url": "chrome://crash"},
            "sessionId": session["result"]["sessionId"],
        }
        await socket.send(json.dumps(crash))
        async with asyncio.timeout(WAIT):
            while "Crashed" not in json.loads(await socket.recv()).get("method", ""):
                pass
        assert "result" in await ask(other, "Browser.getVersion")
        await ask(socket, "Target.closeTarget", targetId=target)


async def test_relay__downloads_arrive_in_the_directory_of_the_policy(server, chromium, tmp_path):
    server.policy.downloads = str(tmp_path)
    async with attached(server, chromium) as socket:
        await ask(
            socket,
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath="/where/the/client/is",
            eventsEnabled=True,
        )
        page = "data:text/html,<a id=a download=report.txt href='data:text/plain,done'>x</a><script>a.click()</script>"
        made = await ask(socket, "Target.createTarget", url=page)
        async with asyncio.timeout(WAIT):
            while True:
                event = json.loads(await socket.recv())
                if event.get("params", {}).get("state") == "completed":
                    break
        await ask(socket, "Target.closeTarget", targetId=made["result"]["targetId"])
    assert (tmp_path / "report.txt").read_text() == "done"


@pytest.mark.parametrize(
    "size",
    [
        16 * MIB,
        pytest.param(200 * MIB, marks=pytest.mark.slow),  # 20 s
    ],
)
async def test_relay__large_messages_pass_both_ways(server, chromium, size):
    async with attached(server, chromium, ping_interval=None) as socket:
        made = await ask(socket, "Target.createTarget", url="about:blank")
        target = made["result"]["targetId"]
        attached_to = await ask(socket, "Target.attachToTarget", targetId=target, flatten=True)
        session = attached_to["result"]["sessionId"]

        async def evaluate(expression):
            command = {
                "id": 5,
                "method": "Runtime.evaluate",
                "params": {"expression": expression, "returnByValue": True},
                "sessionId": session,
            }
            await socket.send(json.dumps(command))
            while (answer := json.loads(await socket.recv())).get("id") != 5:
                pass
            return answer["result"]["result"]["value"]

        async with asyncio.timeout(2 * WAIT):
            assert await evaluate(f"{'x' * 8 * MIB!r}.length") == 8 * MIB
            assert len(await evaluate(f"'x'.repeat({size})")) == size
        await ask(socket, "Target.closeTarget", targetId=target)
    assert server.sleep.pending == 0


async def test_relay__records_messages_of_both_directions(server, chromium):
    server.policy.records = True
    async with attached(server, chromium) as socket:
        await ask(socket, "Browser.getVersion")
    recorded = [
        (direction, json.loads(message)["id"]) for direction, message in server.policy.messages
    ]
    assert recorded == [("client", 1), ("browser", 1)]


async def test_relay__a_message_wakes_the_browser_and_is_answered(server, chromium):
    async with attached(server, chromium) as socket:
        server.sleep.is_ready = False
        await send(socket, "Browser.getVersion")
        await send(socket, "Browser.getVersion", message_id=2)
        assert "result" in await ask(socket, "Browser.getVersion", message_id=3)
    assert server.sleep.woken == 1


async def test_relay__a_browser_that_cannot_be_resumed_closes_the_connection_with_the_reason(
    server, chromium
):
    server.sleep.is_ready, server.sleep.failure = False, SandboxPaused("s" * 20)
    async with attached(server, chromium) as socket:
        await send(socket, "Browser.getVersion")
        code, reason = await closing_of(socket)
    assert code == 1011
    assert "paused" in reason


async def test_relay__pings_of_clients_are_answered_without_the_browser(server, chromium):
    server.sleep.is_ready = False
    async with attached(server, chromium) as socket, asyncio.timeout(WAIT):
        await (await socket.ping(b"there?"))
    assert server.sleep.woken == 0


async def test_relay__a_driver_that_disappears_has_left(server, chromium):
    server.ping_every = timedelta(seconds=0.05)
    writer = await attached_by_hand(server, chromium)
    async with asyncio.timeout(WAIT):
        await server.policy.left.wait()
    writer.close()


async def test_relay__a_client_that_violates_the_protocol_is_told(server, chromium):
    async with attached(server, chromium) as socket:
        socket.transport.write(b"\x83\x80\0\0\0\0")
        code, reason = await closing_of(socket)
    assert (code, reason) == (1002, "The client violated the WebSocket protocol.")


async def test_relay__a_client_that_reads_no_answers_is_disconnected(server, chromium):
    writer = await attached_by_hand(server, chromium)
    pings = (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 1000
    with suppress(ConnectionError):
        async with asyncio.timeout(WAIT):
            while not server.policy.left.is_set():
                writer.write(pings)
                await writer.drain()
    async with asyncio.timeout(WAIT):
        await server.policy.left.wait()
    writer.close()


async def test_relay__a_browser_that_dies_is_explained():
    async with (
        listening_chromium() as dying,
        relaying(dying.port) as server,
        attached(server, dying) as socket,
    ):
        dying.process.kill()
        assert await closing_of(socket) == (LOST.code, LOST.reason)
