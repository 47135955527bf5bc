import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from sandbox_server.commands.service import Commands
from sandbox_server.db.notifications import Notifications
from sandbox_server.domain.commands import CommandKind, CommandRequest, CommandState, TerminalSize
from sandbox_server.domain.errors import (
    CommandNotFound,
    CommandNotRunning,
    IdempotencyMismatch,
    SandboxNotFound,
    StdinClosed,
    TooManyCommands,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.log.records import RecordType
from sandbox_server.providers.protocol.processes import ProcessSignal
from tests.engine.polling import until
from tests.server.commands.command_calls import MINUTE, records, run, start, written
from tests.server.support.in_process_server import caller_of

pytestmark = pytest.mark.needs_engine

NO_WAIT = timedelta()


@pytest.fixture
async def sandbox_id(server):
    return (await server.running()).id


async def test_run_command__records_both_streams_and_the_end(server, sandbox_id):
    ended = await run(server, sandbox_id, r"printf 'a\xff\x00'; echo oh >&2; exit 3")
    assert (ended.state, ended.exit_code) == (CommandState.EXITED, 3)
    assert ended.started_at <= ended.ended_at
    assert (ended.stdout_size, ended.stderr_size, ended.stdout_cut) == (3, 3, 0)
    told = await records(server, ended)
    assert [told[0].type, told[-1].type] == [RecordType.STARTED, RecordType.EXIT]
    assert told[0].data == {"pid": ended.pid}
    assert told[-1].data == {"state": "exited", "exit_code": 3, "reason": None}
    assert await written(server, ended) == b"a\xff\x00"
    assert await written(server, ended, RecordType.STDERR) == b"oh\n"
    assert [one.seq for one in told] == sorted({one.seq for one in told})
    assert ended.last_seq == told[-1].seq


async def test_run_command__uses_its_own_cwd_envs_and_user(server, sandbox_id):
    ended = await run(
        server, sandbox_id, "pwd; id -un; echo $A", cwd="/tmp", user="root", envs={"A": "b c"}
    )
    assert await written(server, ended) == b"/tmp\nroot\nb c\n"


async def test_run_command__a_failed_start_states_the_reason(server, sandbox_id):
    ended = await start(server, sandbox_id, "true", cwd="/nowhere")
    assert ended.state is CommandState.FAILED
    assert "/nowhere" in ended.state_reason
    assert ended.ended_at is not None


async def test_command_timeout__kills_the_command(server, sandbox_id):
    ended = await run(
        server, sandbox_id, "echo before; exec sleep 1001", timeout=timedelta(seconds=0.5)
    )
    assert ended.state is CommandState.TIMED_OUT
    assert await written(server, ended) == b"before\n"
    left = await run(server, sandbox_id, "pgrep -f '^sleep 1001'")
    assert left.exit_code == 1


async def test_command_input__reaches_a_command_until_it_is_closed(server, sandbox_id):
    command = await start(server, sandbox_id, "cat", stdin=True, background=True)
    mine = (server.caller, sandbox_id, command.id)
    await server.commands.send_input(*mine, b"one\xff")
    await server.commands.close_input(*mine)
    ended = await server.commands.wait_ended(command, wait=MINUTE)
    assert (ended.state, ended.exit_code) == (CommandState.EXITED, 0)
    assert await written(server, ended) == b"one\xff"
    with pytest.raises(CommandNotRunning, match="exited"):
        await server.commands.send_input(*mine, b"more")


async def test_command_input__is_refused_without_stdin(server, sandbox_id):
    command = await start(server, sandbox_id, "sleep 1002", background=True)
    mine = (server.caller, sandbox_id, command.id)
    with pytest.raises(StdinClosed):
        await server.commands.send_input(*mine, b"x")
    await server.commands.signal(*mine, ProcessSignal.KILL)
    ended = await server.commands.wait_ended(command, wait=MINUTE)
    assert (ended.state, ended.exit_code) == (CommandState.KILLED, None)
    assert "killed" in ended.state_reason


async def test_terminal__is_recorded_as_one_stream(server, sandbox_id):
    size = TerminalSize(cols=91, rows=17)
    shell = await start(server, sandbox_id, "", kind=CommandKind.TERMINAL, size=size)
    mine = (server.caller, sandbox_id, shell.id)
    await server.commands.resize(*mine, TerminalSize(cols=77, rows=33))
    await server.commands.send_input(*mine, b"stty size; exit 4\n")
    ended = await server.commands.wait_ended(shell, wait=MINUTE)
    assert ended.exit_code == 4
    assert b"33 77" in await written(server, ended)


async def test_idempotency_key__a_repeated_request_returns_the_same_command(server, sandbox_id):
    request = CommandRequest(cmd="echo once >> /tmp/once; cat /tmp/once")
    first = Idempotency(key="k", digest=b"1")
    starts = (
        server.commands.start(server.caller, sandbox_id, request, idempotency=first, wait=MINUTE)
        for _ in range(5)
    )
    made = await asyncio.gather(*starts)
    assert len({one.id for one in made}) == 1
    ended = await server.commands.wait_ended(made[0], wait=MINUTE)
    assert await written(server, ended) == b"once\n"
    with pytest.raises(IdempotencyMismatch):
        await server.commands.start(
            server.caller, sandbox_id, request, idempotency=Idempotency(key="k", digest=b"2")
        )


async def test_run_command__a_caller_that_disconnects_ends_nothing(server, sandbox_id):
    task = asyncio.create_task(start(server, sandbox_id, "sleep 0.2; echo on"))

    async def is_on_record():
        return await server.commands.list_page(
            server.caller, sandbox_id, kinds=CommandKind, limit=2
        )

    (row,) = await until(is_on_record)
    task.cancel()
    ended = await server.commands.wait_ended(row, wait=MINUTE)
    assert await written(server, ended) == b"on\n"


async def test_tenancy__commands_of_other_tenants_are_not_found(server, sandbox_id):
    ended = await run(server, sandbox_id, "true")
    await server.add_tenant(other := new_id())
    with pytest.raises(SandboxNotFound):
        await server.commands.get(caller_of(other), sandbox_id, ended.id)
    with pytest.raises(CommandNotFound):
        await server.commands.get(server.caller, sandbox_id, new_id())
    with pytest.raises(CommandNotFound):
        await server.commands.get(server.caller, sandbox_id, ended.id, kinds={CommandKind.TERMINAL})


async def test_run_command__the_wait_may_end_before_the_command(server, sandbox_id):
    command = await start(server, sandbox_id, "sleep 1003")
    assert (await server.commands.wait_ended(command, wait=NO_WAIT)).state is CommandState.RUNNING


@pytest.mark.slow
async def test_run_command__hundreds_of_long_commands_leave_room_for_short_ones(server, sandbox_id):
    # One more than connections of the SDK go to one address.
    wait = "until [ -e /tmp/go ]; do sleep 1; done"
    for _ in range(21):
        tenth = (start(server, sandbox_id, wait, background=True) for _ in range(10))
        long = await asyncio.gather(*tenth)
    async with asyncio.timeout(60):
        ended = await run(server, sandbox_id, "touch /tmp/go")
    assert ended.exit_code == 0
    last = await server.commands.wait_ended(long[-1], wait=MINUTE)
    assert (last.state, last.exit_code) == (CommandState.EXITED, 0)


@pytest.mark.parametrize("bound", ["max_per_sandbox", "max_per_tenant"])
async def test_command_limit__applies_per_sandbox_and_per_tenant(server, sandbox_id, bound):
    few = Commands(
        server.living.sessions,
        server.controller,
        server.recordings,
        LogNotifications(Notifications(server.living.sessions.kw["bind"])),
        **{bound: 1},
    )
    request = CommandRequest(cmd="sleep 1009", background=True)
    command = await few.start(server.caller, sandbox_id, request)
    with pytest.raises(TooManyCommands):
        await few.start(server.caller, sandbox_id, request)
    await few.signal(server.caller, sandbox_id, command.id, ProcessSignal.KILL)
    await few.wait_ended(command, wait=MINUTE)

    async def is_let_in():
        with suppress(TooManyCommands):
            return await few.start(server.caller, sandbox_id, request)

    assert await until(is_let_in)
