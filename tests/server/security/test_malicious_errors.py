"""Error messages from a sandbox whose owner has root in it."""

import json

import pytest

from sandbox_server.domain.commands import CommandState
from tests.server.commands.command_calls import run
from tests.server.support.fault_proxy import Exchange
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import new_living

pytestmark = pytest.mark.needs_engine

START = "POST /process.Process/Start"


def refusal(message):
    """Answer a start with this error."""

    async def fault(exchange: Exchange) -> None:
        body = json.dumps({"error": {"code": "invalid_argument", "message": message}}).encode()
        await exchange.answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nConnection: close\r\n\r\n\x02"
            + len(body).to_bytes(4, "big")
            + body
        )
        exchange.hang_up()

    return fault


@pytest.fixture
async def server(database, sessions, backend_at, proxy):
    living = await new_living(sessions, backend_at(proxy.url))
    async with running_server(database, living) as server:
        yield server


@pytest.mark.parametrize("words", ["a\0b", "a\ud800b"], ids=["NUL", "half a character"])
async def test_malicious_sandbox__a_command_ends_whatever_error_the_sandbox_reports(
    server, proxy, words
):
    sandbox_id = (await server.running()).id
    proxy.on(START, refusal(words))
    ended = await run(server, sandbox_id, "true")
    assert ended.state is CommandState.FAILED
    assert "a" in ended.state_reason
