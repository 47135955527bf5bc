"""Recording after interruptions: server stopped or killed, sandbox paused, connection lost."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta

import pytest
from sqlalchemy import func, update

from sandbox_server.commands.recording import HANDED_OVER
from sandbox_server.commands.recording_repository import RecordingRepository
from sandbox_server.db.models import Command
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.ids import new_id
from sandbox_server.log.records import RecordType
from sandbox_server.providers.protocol.processes import NewProcess, Started
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from tests.engine.polling import until
from tests.server.commands.command_calls import (
    MINUTE,
    gaps,
    has_written,
    records,
    run,
    start,
    written,
)
from tests.server.support.in_process_server import running_server

pytestmark = pytest.mark.needs_engine

ECHO = 'while read -r line; do echo "got $line"; done'


async def say(server, command, text):
    await server.commands.send_input(server.caller, command.sandbox_id, command.id, text)


async def test_server_stop__commands_are_handed_over_at_once(database, living, replica):
    async with AsyncExitStack() as stopping:
        # Its lease would last longer than the test.
        first = await stopping.enter_async_context(running_server(database, living))
        sandbox_id = (await first.running()).id
        command = await start(first, sandbox_id, ECHO, stdin=True, background=True)
        await say(first, command, b"one\n")
        await until(lambda: has_written(first, command, b"got one"))
    await until(lambda: has_gap(replica, command))
    await say(replica, command, b"two\n")
    await replica.commands.close_input(replica.caller, sandbox_id, command.id)
    ended = await replica.commands.wait_ended(command, wait=MINUTE)
    assert (ended.state, ended.exit_code, ended.pid) == (CommandState.EXITED, 0, command.pid)
    assert await written(replica, ended) == b"got one\ngot two\n"
    assert await gaps(replica, ended) == [HANDED_OVER]


async def test_server_stop__a_stopping_server_takes_over_no_commands(
    database, living, server, sandbox_id
):
    command = await start(server, sandbox_id, "sleep 1008", background=True)
    await server.recordings.close(within=MINUTE)
    # It goes on hearing of what is left, as it does until all of it has stopped.
    async with running_server(database, living) as other:
        await until(lambda: is_recorded(other, command))


async def has_gap(server, command):
    return await gaps(server, command)


async def left_by_a_server_that_died(living, sandbox_id, cmd, *, state="running", **columns):
    """Leave a command as a killed server does: stored, perhaps running, its lease expired."""
    command_id = new_id()
    if cmd is not None:
        row = await living.row(sandbox_id)
        access = open_access(living.vault, sandbox_id, row.access_sealed)
        processes = living.backend.processes(access)
        process = NewProcess(args=["/bin/bash", "-c", cmd], tag=command_id)
        async with aclosing(processes.start(process)) as events:
            assert isinstance(await anext(events), Started)
    async with living.sessions.begin() as session:
        return await RecordingRepository(session).add(
            by="a server that died",
            lease=timedelta(0),
            id=command_id,
            tenant_id=living.tenant_id,
            sandbox_id=sandbox_id,
            cmd=cmd or "true",
            state=CommandState(state),
            **columns,
        )


@pytest.fixture
def eager_server(database, living):
    """Run a server that looks for released commands continuously."""
    return running_server(database, living, lease=timedelta(seconds=1))


async def ended_by(server, command):
    return await server.commands.wait_ended(command, wait=MINUTE)


async def test_server_crash__the_next_server_continues_the_command(
    living, server, sandbox_id, eager_server
):
    cmd = "until [ -e /tmp/go ]; do sleep 0.02; done; echo on"
    command = await left_by_a_server_that_died(living, sandbox_id, cmd)
    async with eager_server as other:
        await until(lambda: has_gap(other, command))
        await run(other, sandbox_id, "touch /tmp/go")
        ended = await ended_by(other, command)
    assert (ended.state, ended.exit_code) == (CommandState.EXITED, 0)
    assert await written(server, ended) == b"on\n"


async def test_server_crash__a_start_without_a_response_is_found_and_not_repeated(
    living, sandbox_id, eager_server, server
):
    command = await left_by_a_server_that_died(
        living, sandbox_id, "echo once >> /tmp/n; sleep 1004", state="starting"
    )
    async with eager_server as other:
        await until(lambda: has_gap(other, command))
        found = await other.commands.get(other.caller, sandbox_id, command.id)
        told = await records(other, found)
        assert found.state is CommandState.RUNNING
        assert [one.type for one in told] == [RecordType.STARTED, RecordType.GAP]
        assert await written(other, await run(other, sandbox_id, "cat /tmp/n")) == b"once\n"


@pytest.mark.parametrize("state", ["starting", "running"])
async def test_lost_command__is_never_run_again(living, sandbox_id, eager_server, server, state):
    command = await left_by_a_server_that_died(living, sandbox_id, None, state=state)
    async with eager_server as other:
        ended = await ended_by(other, command)
    assert ended.state is CommandState.LOST
    assert "process" in ended.state_reason
    assert [one.type for one in await records(server, ended)] == [RecordType.EXIT]


async def test_command_timeout__expired_while_no_server_ran_kills_the_command(
    living, sandbox_id, eager_server, server
):
    command = await left_by_a_server_that_died(
        living,
        sandbox_id,
        "exec sleep 1005",
        timeout=timedelta(seconds=1),
        expires_at=await living.now(),
    )
    async with eager_server as other:
        ended = await ended_by(other, command)
        assert ended.state is CommandState.TIMED_OUT
        assert (await run(other, sandbox_id, "pgrep -f '^sleep 1005'")).exit_code == 1


async def test_delete_sandbox__ends_its_commands(server, sandbox_id):
    command = await start(server, sandbox_id, "sleep 1006", background=True)
    await server.controller.delete(server.caller, sandbox_id)
    ended = await ended_by(server, command)
    assert (ended.state, ended.state_reason) == (CommandState.KILLED, "The sandbox ended.")


async def test_pause__a_command_continues_after_resume_and_does_not_cause_it(
    server, sandbox_id, living
):
    command = await start(server, sandbox_id, ECHO, stdin=True, background=True)
    await say(server, command, b"one\n")
    await until(lambda: has_written(server, command, b"got one"))
    await server.controller.pause(server.caller, sandbox_id)
    await server.controller.resume(server.caller, sandbox_id)
    await until(lambda: has_gap(server, command))
    await say(server, command, b"two\n")
    await server.commands.close_input(server.caller, sandbox_id, command.id)
    ended = await ended_by(server, command)
    assert await written(server, ended) == b"got one\ngot two\n"
    assert (await living.states(sandbox_id)).count("resuming") == 1


async def test_pause__recovery_of_commands_does_not_resume_a_sandbox(
    living, server, sandbox_id, eager_server
):
    command = await left_by_a_server_that_died(living, sandbox_id, "echo on; sleep 1007")
    await server.controller.pause(server.caller, sandbox_id)
    async with eager_server as other:
        await until(lambda: is_recorded(other, command))
        await server.controller.resume(server.caller, sandbox_id)
        await until(lambda: has_gap(other, command))
    assert (await living.states(sandbox_id)).count("resuming") == 1


async def is_recorded(server, command):
    return server.recordings.find(command.id) is not None


async def test_lease__a_server_without_the_lease_writes_nothing(
    server, replica, living, sandbox_id
):
    command = await start(server, sandbox_id, ECHO, stdin=True, background=True)
    recording = server.recordings.find(command.id)
    async with living.sessions.begin() as session:
        taken = update(Command).where(Command.id == command.id)
        await session.execute(
            taken.values(recorded_by="another", recorded_until=func.now() + MINUTE)
        )
    await say(server, command, b"one\n")
    async with asyncio.timeout(30):
        await recording.finished.wait()
    assert await written(server, command) == b""
    assert (await server.commands.get(server.caller, sandbox_id, command.id)).last_seq == (
        command.last_seq
    )
