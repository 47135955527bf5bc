"""Spellings of commands, as the real Chromium reads them."""

import asyncio
from contextlib import suppress

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from tests.chromium_process import listening_chromium
from tests.server.browsers.cdp.relay_server import relaying
from tests.server.browsers.cdp.test_relay import WAIT, ask, attached

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium():
    async with listening_chromium() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="module")
async def server(chromium):
    async with relaying(chromium.port) as server:
        yield server


async def closing_or_answer_of(socket):
    with suppress(ConnectionClosed):
        async with asyncio.timeout(WAIT):
            await socket.recv()


@pytest.mark.parametrize(
    "spelling",
    [
        r'{"id":1,"method":"\u0042rowser.close"}',
        r'{"id":1,"m\u0065thod":"Browser.\u0063rash"}',
        r'{"id":1,"method":"\x42rowser.close"}',
        r'{"id":1,"method":"Browser\.close"}',
        '{"id":1,/* */"method":"Browser.close"}',
        '// x\n{"id":1,"method":"Browser.close"}',
        '{"id":1,"method":"Page.enable","method":"Browser.close"}',
        '{"id":1,"method":"Browser.close","method":"Page.enable"}',
        '{"id":1,"method":"Browser.close",}',
        '\ufeff{"id":1,"method":"Browser.close"}',
        '{"id":1,"method":"Browser.close"}\0',
        "{'id':1,'method':'Browser.close'}",
        '{"id":1,"method":Browser.close}',
    ],
)
async def test_relay__no_spelling_closes_the_browser(server, chromium, spelling):
    async with attached(server, chromium) as socket:
        await socket.send(spelling)
        await closing_or_answer_of(socket)
    async with attached(server, chromium) as socket:
        assert "result" in await ask(socket, "Browser.getVersion")


async def test_relay__a_nested_command_closes_nothing(server, chromium):
    async with attached(server, chromium) as socket:
        target = (await ask(socket, "Target.createTarget", url="about:blank"))["result"]["targetId"]
        session = await ask(socket, "Target.attachToTarget", targetId=target, flatten=False)
        refused = await ask(
            socket,
            "Target.sendMessageToTarget",
            sessionId=session["result"]["sessionId"],
            message=r'{"id":1,"method":"Browser.cl\u006fse"}',
        )
        assert "refused" in refused["error"]["message"]
        assert "result" in await ask(socket, "Target.closeTarget", targetId=target)
