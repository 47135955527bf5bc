"""Merged logs: events and output of sandboxes in one order."""

import asyncio
import os
import subprocess

import pytest
from sqlalchemy import delete, func, select, update

from sandbox_server.db.models import Command, CommandOutput, Event, Sandbox, Stream
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State
from sandbox_server.log.events import LOG_CHANNEL
from tests.docs.blocks import BY_HTTP
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import all_of, caller_of
from tests.server.support.event_reader import following
from tests.server.support.rows import add_event, add_sandbox, find_tenant, now

LOGS = "/v1/logs"


@pytest.fixture
async def tenant_id(reader, sessions):
    return await find_tenant(sessions)


@pytest.fixture
async def row(sessions, tenant_id):
    return await add_sandbox(sessions, tenant_id)


@pytest.fixture
def new_command(sessions, tenant_id):
    """Insert a command in a sandbox; returns its id."""

    async def new_command(row, **fields):
        command = Command(
            id=new_id(), tenant_id=tenant_id, sandbox_id=row.id, cmd="x", state="running", **fields
        )
        async with sessions.begin() as session:
            session.add(command)
        return command

    return new_command


@pytest.fixture
def store_output(sessions, tenant_id):
    """Store output as a recorder does."""

    async def store_output(command, content, *, kind="stdout", **data):
        async with sessions.begin() as session:
            counting = update(Stream).where(Stream.tenant_id == tenant_id)
            counted = counting.values(next_seq=Stream.next_seq + 1).returning(Stream.next_seq)
            seq = await session.scalar(counted) - 1
            session.add(
                CommandOutput(
                    sandbox_id=command.sandbox_id,
                    seq=seq,
                    command_id=command.id,
                    type=kind,
                    content=content,
                    data=data,
                )
            )
        return seq

    return store_output


@pytest.fixture
async def sample_records(sessions, tenant_id, row, new_command, store_output):
    """Create a sandbox with records of every kind, each containing its own number."""
    await add_event(sessions, tenant_id, row.id, "1")
    command, terminal = await new_command(row), await new_command(row, kind="terminal")
    service = await new_command(row, kind="service", name="web")
    for number, of in enumerate([command, terminal, service, command], 2):
        assert await store_output(of, str(number).encode()) == number
    await add_event(sessions, tenant_id, row.id, "6")
    assert await store_output(command, b"\xff7") == 7
    return {"command": command, "terminal": terminal, "service": service}


def said(item):
    return item.get("text") or item.get("base64") or item.get("reason")


def sources_of(items):
    return [(item["source"], said(item)) for item in items]


async def test_read_logs__merges_all_sources_except_terminals_in_one_order(
    reader, row, sample_records
):
    path = f"/v1/sandboxes/{row.id}/logs"
    listed = [item async for item in all_of(reader, path, limit=2)]
    assert sources_of(listed) == [
        ("events", "1"),
        ("command", "2"),
        ("service", "4"),
        ("command", "5"),
        ("events", "6"),
        ("command", "/zc="),
    ]
    assert [item["seq"] for item in listed] == [1, 2, 4, 5, 6, 7]
    assert listed[2]["name"] == "web"
    assert listed[1]["command_id"] == sample_records["command"].id
    async with following(reader, path) as stream:
        streamed = [await anext(stream) for _ in listed]
    assert [one.data for one in streamed] == listed
    assert [one.id for one in streamed] == [1, 2, 4, 5, 6, 7]


@pytest.mark.usefixtures("sample_records")
async def test_read_logs__returns_only_the_selected_sources(reader, row):
    path = f"/v1/sandboxes/{row.id}/logs"
    asked = {"source": ["terminal", "events"]}
    listed = [item async for item in all_of(reader, path, limit=1, **asked)]
    assert sources_of(listed) == [("events", "1"), ("terminal", "3"), ("events", "6")]
    async with following(reader, path, params={**asked, "tail": 2}) as stream:
        assert [said((await anext(stream)).data) for _ in range(2)] == ["3", "6"]


async def test_read_logs__streams_several_sandboxes_until_all_have_ended(
    reader,
    sessions,
    tenant_id,
    row,
    new_command,
    store_output,
):
    other = await add_sandbox(sessions, tenant_id)
    await add_event(sessions, tenant_id, row.id, "1")
    await add_event(sessions, tenant_id, (await add_sandbox(sessions, tenant_id)).id, "of a third")
    command = await new_command(other)
    asked = {"sandbox": [row.id, other.id, row.id]}
    async with following(reader, LOGS, params=asked) as stream:
        assert said((await anext(stream)).data) == "1"
        await store_output(command, b"3")
        await notify(sessions, f"sandbox/{other.id}")
        assert said((await anext(stream)).data) == "3"
        for each in (row, other):
            await end(sessions, each)
            await add_event(sessions, tenant_id, each.id, "stopped")
            assert said((await anext(stream)).data) == "stopped"
        async with sessions.begin() as session:
            ended = {"state": CommandState.KILLED, "ended_at": now()}
            await session.execute(update(Command).values(**ended))
        await store_output(command, b"", kind="exit", reason="It ended with its sandbox.")
        await notify(sessions, f"sandbox/{other.id}")
        last = [one.data for one in await stream.rest()][-1]
        assert (last["type"], said(last)) == ("exit", "It ended with its sandbox.")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last["seq"])}
    assert (await reader.get(LOGS, params=asked, headers=headers)).status_code == 204


async def test_read_logs__reports_removed_records_as_a_gap(
    reader,
    sessions,
    row,
    sample_records,
):
    path = f"/v1/sandboxes/{row.id}/logs"
    async with sessions.begin() as session:
        await session.execute(delete(Command).where(Command.id == sample_records["command"].id))
        removed = {"output_removed_seq": 5, "output_removed_at": now()}
        await session.execute(update(Stream).values(**removed))
    async with following(reader, path, after=2) as stream:
        gap = await anext(stream)
        assert (gap.id, gap.data) == (5, {"type": "gap", "after": 2, "oldest": 6})
        assert (await anext(stream)).id == 6
    async with following(reader, path, params={"source": "events"}) as stream:
        assert [(await anext(stream)).id for _ in range(2)] == [1, 6]
    async with sessions.begin() as session:
        await session.execute(delete(Event).where(Event.seq == 1))
        await session.execute(update(Stream).values(removed_seq=1, removed_at=now()))
    listed = (await reader.get(path, params={"source": "events", "limit": 10})).json()
    assert listed["items"][0]["type"] == "gap"


async def test_tenancy__logs_require_access_to_all_sandboxes(
    app,
    reader,
    sessions,
    row,
    make_key,
):
    async with caller_of(app, await make_key(tenant="other")) as other:
        theirs = await add_sandbox(sessions, await find_tenant(sessions, "other"))
        for asked in ([row.id], [theirs.id, row.id], ["0" * 20], ["x"]):
            for headers in ({}, {"Accept": "text/event-stream"}):
                answer = await other.get(LOGS, params={"sandbox": asked}, headers=headers)
                assert_problem(answer, status=404, code="sandbox-not-found")
        assert (await other.get(LOGS, params={"sandbox": theirs.id})).status_code == 200
    refused = await reader.get(LOGS)
    assert_problem(refused, status=422, code="validation-failed")


async def notify(sessions, topics):
    async with sessions.begin() as session:
        await session.execute(select(func.pg_notify(LOG_CHANNEL, topics)))


async def end(sessions, row):
    async with sessions.begin() as session:
        ended = {"state": State.STOPPED, "ended_at": now()}
        await session.execute(update(Sandbox).where(Sandbox.id == row.id).values(**ended))


async def test_docs__the_examples_of_logs_work(
    port, make_key, reader, sessions, row, sample_records
):
    async with sessions.begin() as session:
        await session.execute(update(Command).values(state="killed", ended_at=now()))
    await end(sessions, row)  # so that the last of them ends
    script = BY_HTTP.read_text().partition("\n## Events and logs\n")[2]
    script = script.partition("```sh\n")[2].partition("```")[0]
    server = {"KEY": await make_key(), "SERVER": f"http://127.0.0.1:{port}", "ID": row.id}
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euxc", script.replace("curl ", "curl -sS --fail-with-body ")),
        env=os.environ | server,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        shown, problems = await process.communicate()
    assert process.returncode == 0, shown + problems
    assert b'"text":"5"' in shown
    assert b'id: 7\ndata: {"source":"command"' in shown
