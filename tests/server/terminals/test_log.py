"""Positions and sizes in the log of a terminal."""

import asyncio

import pytest
from sqlalchemy import select

from sandbox_server.commands.terminal_repository import TerminalRepository
from sandbox_server.db.models import Command, CommandOutput
from sandbox_server.domain.commands import CommandKind, TerminalSize
from sandbox_server.terminals.source import TerminalItem, TerminalSource
from tests.server.commands.command_rows import record_command
from tests.server.support.api_fixtures import find_or_make
from tests.server.support.locks import waiting_for_a_lock
from tests.server.support.rows import add_sandbox


@pytest.fixture
async def tenant_id(sessions):
    async with sessions.begin() as session:
        return await find_or_make(session, "default")


@pytest.fixture
async def terminal(sessions, tenant_id):
    sandbox = await add_sandbox(sessions, tenant_id)
    return await record_command(
        sessions, tenant_id, sandbox.id, kind=CommandKind.TERMINAL, cols=80, rows=24
    )


async def position(sessions, terminal, offset):
    async with sessions() as session:
        return await TerminalRepository(session).find_position(terminal.command_id, offset=offset)


async def resize(sessions, terminal, cols, rows):
    async with sessions.begin() as session:
        size = TerminalSize(cols=cols, rows=rows)
        await TerminalRepository(session).note_size(terminal.command_id, size)


async def sizes(sessions, terminal):
    resized = select(CommandOutput).where(CommandOutput.type == "resized")
    async with sessions() as session:
        row = await session.get(Command, terminal.command_id)
        return (row.cols, row.rows), [(r.seq, r.data) for r in await session.scalars(resized)]


async def test_terminal_log__a_byte_is_found_in_its_record(sessions, terminal):
    await terminal.add("started", pid=7)
    first = await terminal.write("stdout", b"one")
    second = await terminal.write("stdout", b"two")
    for offset, piece in ((0, first), (2, first), (3, second), (5, second)):
        assert await position(sessions, terminal, offset) == piece.seq - 1
    assert await position(sessions, terminal, 6) == second.seq


async def test_terminal_log__the_end_comes_after_the_last_byte(sessions, terminal):
    assert await position(sessions, terminal, 0) == 0
    last = await terminal.write("stdout", b"one")
    await terminal.end()
    assert await position(sessions, terminal, 3) == last.seq


async def test_terminal_log__bytes_in_a_gap_are_found_at_the_gap(sessions, terminal):
    pieces = [await terminal.write("stdout", b"12345") for _ in range(4)]
    await terminal.drop("stdout", pieces[1:3])
    for offset in (5, 7, 14):
        assert await position(sessions, terminal, offset) == pieces[2].seq - 1
    assert await position(sessions, terminal, 15) == pieces[3].seq - 1


async def test_terminal_log__only_the_last_size_is_kept_at_its_position(sessions, terminal):
    await resize(sessions, terminal, 80, 24)
    assert await sizes(sessions, terminal) == ((80, 24), [])
    await resize(sessions, terminal, 100, 30)
    await resize(sessions, terminal, 120, 40)
    await resize(sessions, terminal, 120, 40)
    size, [(seq, data)] = await sizes(sessions, terminal)
    assert (size, data) == ((120, 40), {"cols": 120, "rows": 40})
    source = TerminalSource(tenant_id="t", command_id=terminal.command_id)
    page = await source.read(sessions, after=0, limit=10)
    [item] = page.items
    assert isinstance(item, TerminalItem)
    assert (item.id, item.record.type) == (seq, "resized")


async def test_terminal_log__concurrent_resizes_are_serialized(sessions, terminal):
    async with sessions.begin() as session:
        repository = TerminalRepository(session)
        await repository.note_size(terminal.command_id, TerminalSize(cols=100, rows=30))
        other = asyncio.create_task(resize(sessions, terminal, 120, 40))
        await waiting_for_a_lock(sessions)
    await other
    size, [(_, data)] = await sizes(sessions, terminal)
    assert (size, data) == ((120, 40), {"cols": 120, "rows": 40})


async def test_terminal_log__an_ended_terminal_keeps_its_size(sessions, terminal):
    await terminal.end()
    await resize(sessions, terminal, 100, 30)
    assert await sizes(sessions, terminal) == ((80, 24), [])
