"""Several clients of one browser, of which some misbehave."""

import asyncio
import json
from datetime import timedelta

import pytest
import pytest_asyncio
from websockets.frames import Opcode

from sandbox_server.browsers.cdp.frames import build_frame
from tests.chromium_process import listening_chromium
from tests.server.browsers.cdp.relay_server import LOST, relaying
from tests.server.browsers.cdp.test_relay import (
    WAIT,
    ask,
    attached,
    attached_by_hand,
    closing_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANIMATION = (
    "data:text/html,<div id=d style='width:300px;height:300px'></div><script>let n = 0;"
    "setInterval(() => d.style.background = `hsl(${n++ % 360}, 80%25, 50%25)`, 20)</script>"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium():
    async with listening_chromium() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="module")
async def server(chromium):
    async with relaying(chromium.port) as server:
        yield server


def command(method, *, message_id=1, session=None, **params):
    content = {"id": message_id, "method": method, "params": params}
    return json.dumps(content if session is None else {**content, "sessionId": session})


async def watch(socket, target, *, frames):
    """Count frames of a page as the live view does."""
    attached_to = await ask(socket, "Target.attachToTarget", targetId=target, flatten=True)
    session = attached_to["result"]["sessionId"]
    await socket.send(command("Page.enable", message_id=2, session=session))
    await socket.send(command("Page.startScreencast", message_id=3, session=session, format="jpeg"))
    seen = 0
    async with asyncio.timeout(WAIT):
        while seen < frames:
            event = json.loads(await socket.recv())
            if event.get("method") == "Page.screencastFrame":
                seen += 1
                number = event["params"]["sessionId"]
                ack = command(
                    "Page.screencastFrameAck", message_id=4, session=session, sessionId=number
                )
                await socket.send(ack)
    return seen


async def test_clients__two_drivers_and_three_watchers_share_a_browser(server, chromium):
    async with (
        attached(server, chromium) as one,
        attached(server, chromium) as two,
    ):
        made = await ask(one, "Target.createTarget", url=ANIMATION)
        target = made["result"]["targetId"]
        server.only_watches = True
        watchers = [await attached(server, chromium) for _ in range(3)]
        watching = [asyncio.create_task(watch(each, target, frames=5)) for each in watchers]

        async def drive(socket):
            for number in range(2, 100):
                answer = await ask(socket, "Browser.getVersion", message_id=number)
                assert "product" in answer["result"]

        await asyncio.gather(drive(one), drive(two))
        assert await asyncio.gather(*watching) == [5, 5, 5]
        for each in watchers:
            await each.close()
        await ask(one, "Target.closeTarget", targetId=target)


async def test_clients__a_viewer_that_reads_nothing_is_dropped_and_harms_no_driver(
    server, chromium
):
    server.ping_every = timedelta(seconds=0.2)
    async with attached(server, chromium) as driver:
        made = await ask(driver, "Target.createTarget", url="about:blank")
        page = f"/devtools/page/{made['result']['targetId']}"
        writer = await attached_by_hand(server, chromium, path=page)
        writer.transport.pause_reading()
        large = command("Runtime.evaluate", expression="'x'.repeat(8 << 20)", returnByValue=True)
        for _ in range(8):
            writer.write(build_frame(large.encode(), opcode=Opcode.TEXT, masked=True))
        async with asyncio.timeout(WAIT):
            while not server.policy.left.is_set():
                assert "result" in await ask(driver, "Browser.getVersion", message_id=2)
        writer.transport.abort()
        await ask(driver, "Target.closeTarget", targetId=made["result"]["targetId"])


async def test_clients__all_are_told_when_the_browser_is_restarted():
    async with listening_chromium() as dying, relaying(dying.port) as server:
        sockets = [await attached(server, dying) for _ in range(2)]
        pending = [asyncio.create_task(closing_of(each)) for each in sockets]
        dying.process.kill()
        assert await asyncio.gather(*pending) == [(LOST.code, LOST.reason)] * 2
