"""A sandbox whose root user replaces envd with a server that sends invalid responses."""

import asyncio
import json
import struct
from datetime import timedelta

import pytest

from sandbox_server.domain.commands import CommandState
from sandbox_server.log.records import RecordType
from tests.server.commands.command_calls import records, run, start, written
from tests.server.support.fault_proxy import Exchange
from tests.server.support.managed_sandboxes import new_living

pytestmark = pytest.mark.needs_engine

START = "POST /process.Process/Start"
_END = 2


@pytest.fixture
async def living(sessions, backend_at, proxy):
    return await new_living(sessions, backend_at(proxy.url))


def events_of(*events, ends=True):
    """Answer with these process events in E2B's protocol."""
    messages = [(0, {"event": event}) for event in events]
    if ends:
        messages.append((_END, {}))

    async def fault(exchange: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nConnection: close\r\n\r\n"
        await exchange.answer(head)
        for flags, message in messages:
            body = json.dumps(message).encode()
            await exchange.answer(struct.pack(">BI", flags, len(body)) + body)
        exchange.hang_up()

    return fault


STARTED = {"start": {"pid": 7}}
EXITED = {"end": {"exitCode": 0, "exited": True, "status": "exit status 0"}}


async def test_recording__a_start_without_a_response_is_found_by_its_tag(server, sandbox_id, proxy):
    carried_out = []

    async def hang_up(exchange: Exchange) -> None:
        carried_out.append(asyncio.create_task(exchange.pass_on()))
        exchange.hang_up()

    proxy.on(START, hang_up)
    command = await start(server, sandbox_id, "echo once >> /tmp/n; sleep 1008", background=True)
    assert command.state is CommandState.RUNNING
    assert await written(server, await run(server, sandbox_id, "cat /tmp/n")) == b"once\n"
    for each in carried_out:
        each.cancel()


async def test_recording__an_interrupted_stream_is_reconnected_until_the_process_is_gone(
    server, sandbox_id, proxy
):
    proxy.on(START, events_of(STARTED, {"data": {"stdout": "b25l"}}, ends=False))
    ended = await run(server, sandbox_id, "true")
    assert ended.state is CommandState.LOST
    assert await written(server, ended) == b"one"


async def test_recording__invalid_process_events_are_rejected(server, sandbox_id, proxy):
    proxy.on(
        START,
        events_of(
            {"start": {"pid": 2**32 - 1}},
            {"start": {"pid": 8}},
            {"data": {}},
            {"data": {"stdout": ""}},
            {"keepalive": {}},
            {"end": {"exitCode": -1, "status": "signal: \0" + "x" * 5000}},
        ),
    )
    ended = await run(server, sandbox_id, "true")
    assert (ended.state, ended.pid) == (CommandState.KILLED, None)
    assert len(ended.state_reason) <= 500
    assert [one.type for one in await records(server, ended)] == [
        RecordType.STARTED,
        RecordType.EXIT,
    ]


async def test_recording__an_end_without_a_start_ends_the_command(server, sandbox_id, proxy):
    proxy.on(START, events_of(EXITED))
    assert (await run(server, sandbox_id, "true")).state is CommandState.EXITED


async def test_recording__an_invalid_response_is_no_process(server, sandbox_id, proxy):
    async def nonsense(exchange: Exchange) -> None:
        await exchange.answer(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n")
        await exchange.answer(b"\xff" * 100)
        exchange.hang_up()

    proxy.on(START, nonsense)
    ended = await run(server, sandbox_id, "true")
    assert ended.state in {CommandState.LOST, CommandState.FAILED}


async def test_recording__an_oversized_message_is_not_read_to_its_end(server, sandbox_id, proxy):
    async def endless(exchange: Exchange) -> None:
        await exchange.answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n"
            + struct.pack(">BI", 0, 2**32 - 1)
        )
        for _ in range(1000):
            await exchange.answer(b"x" * 2**20)

    proxy.on(START, endless)
    ended = await run(server, sandbox_id, "true")
    assert ended.state in {CommandState.LOST, CommandState.FAILED}


@pytest.mark.slow  # floods a server for seconds
async def test_recording__a_flood_does_not_delay_other_commands(server, sandbox_id):
    flood = await start(server, sandbox_id, "exec cat /dev/zero", background=True)
    for _ in range(3):
        assert (await run(server, sandbox_id, "echo here")).stdout_size == len("here\n")
    ended = await run(server, sandbox_id, "pkill -x cat")
    assert ended.exit_code == 0
    flood = await server.commands.wait_ended(flood, wait=timedelta(minutes=1))
    assert flood.state is CommandState.KILLED
    assert flood.stdout_size - flood.stdout_cut <= 2**20
    assert flood.stdout_cut > 0
