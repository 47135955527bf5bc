"""What keeps a sandbox from being paused as idle: whoever has to do with it, on whichever server."""

import asyncio
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import pytest

from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.commands import CommandKind, CommandRequest, TerminalSize
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.hub import StreamHub
from sandbox_server.providers.protocol.processes import ProcessSignal
from tests.engine.polling import until
from tests.server.support.managed_sandboxes import HOUR, MINUTE

pytestmark = pytest.mark.needs_engine

ALMOST = timedelta(seconds=50)


@pytest.fixture
async def quiet(server):
    return await server.running(idle_timeout=MINUTE)


@asynccontextmanager
async def noted(server, row):
    """Let almost all of its idle timeout pass, and wait until it is noted that something happens in it."""
    before = (await server.living.row(row.id)).last_activity_at
    await server.living.pass_time(row.id, ALMOST)
    yield

    async def is_news():
        now = await server.living.row(row.id)
        assert now.state is State.RUNNING
        return now.last_activity_at > before

    await until(is_news, timeout=30)


async def is_noted(server, row):
    async with noted(server, row):
        pass


async def is_paused_for_being_idle(server, row):
    async def is_due():
        await server.living.pass_time(row.id, 2 * MINUTE)
        async with server.living.sessions.begin() as session:
            await JobRepository(session).due(kinds.SANDBOX, row.id)
        return (await server.living.row(row.id)).state is State.PAUSED

    await until(is_due, timeout=30, pause=0.1)
    paused = await server.living.row(row.id)
    assert "of idle timeout" in paused.state_reason


async def test_activity__a_held_sandbox_stays_awake_on_any_server(server, replica, quiet):
    with replica.controller.activity.hold(quiet):
        with server.controller.activity.hold(quiet), server.controller.activity.hold(quiet):
            await is_noted(server, quiet)
        with server.controller.activity.hold(quiet):
            await is_noted(server, quiet)
        await is_noted(server, quiet)
        await is_noted(server, quiet)
    await is_paused_for_being_idle(server, quiet)


async def test_activity__is_recorded_once_per_interval(server, quiet):
    async with noted(server, quiet):
        server.controller.activity.note(quiet)
    await is_paused_for_being_idle(server, quiet)


async def test_activity__the_end_of_a_hold_counts(server, quiet):
    holding = server.controller.activity.hold(quiet)
    holding.__enter__()
    await is_noted(server, quiet)
    async with noted(server, quiet):
        holding.__exit__(None, None, None)


async def test_activity__a_short_idle_timeout_is_honoured(server):
    row = await server.running(idle_timeout=timedelta(seconds=1))
    with server.controller.activity.hold(row):

        async def has_lasted():
            now = await server.living.row(row.id)
            assert now.state is State.RUNNING
            return now.last_activity_at > row.last_activity_at + 2 * row.idle_timeout

        await until(has_lasted, timeout=30)
    paused = await server.settled(row.id, State.PAUSED)
    assert "of idle timeout" in paused.state_reason


async def test_activity__a_shorter_idle_timeout_does_not_pause_a_held_sandbox(server):
    row = await server.running(idle_timeout=HOUR)
    with server.controller.activity.hold(row):
        await server.living.pass_time(row.id, 10 * MINUTE)
        await server.controller.update(server.caller, row.id, {"idle_timeout": MINUTE})
        assert (await server.living.row(row.id)).target is Target.RUNNING
        await is_noted(server, row)


async def test_activity__a_held_paused_sandbox_stays_paused(server, quiet):
    with server.controller.activity.hold(quiet):
        await is_noted(server, quiet)
        paused = await server.controller.pause(server.caller, quiet.id)
        other = await server.running(idle_timeout=MINUTE)
        async with noted(server, other):
            server.controller.activity.note(other)
        now = await server.living.row(quiet.id)
    assert (now.state, now.last_activity_at) == (State.PAUSED, paused.last_activity_at)


async def test_activity__is_recorded_after_a_database_outage_and_logged_once(server, quiet, caplog):
    awake = server.controller.activity
    there = awake._sessions
    tries = asyncio.Semaphore(0)

    async def hang_up(_reader, writer):
        tries.release()
        writer.close()

    gone = await asyncio.start_server(hang_up, "127.0.0.1")
    nowhere = create_engine(f"postgresql://nobody@127.0.0.1:{gone.sockets[0].getsockname()[1]}/a")
    awake._sessions = create_sessions(nowhere)
    async with gone, asyncio.timeout(30):
        awake.note(quiet)
        for _ in range(3):
            await tries.acquire()
    async with noted(server, quiet):
        awake._sessions = there
    assert len([said for said in caplog.messages if "activity not recorded" in said]) == 1


async def test_activity__a_sandbox_with_a_running_command_is_not_idle(server, quiet, verbs_of):
    verbs = verbs_of(server)
    waiting = "until test -e /tmp/go; do sleep 0.1; done"
    running = asyncio.create_task(
        verbs.run_command(server.caller, quiet.id, waiting, timeout=MINUTE)
    )
    await is_noted(server, quiet)
    await is_noted(server, quiet)
    assert not running.done()
    await verbs.write_file(server.caller, quiet.id, "/tmp/go", b"")
    assert (await running).exit_code == 0


@pytest.fixture
async def start(server, quiet):
    """Start commands in the quiet sandbox."""

    async def start(cmd, **fields):
        return await server.commands.start(
            server.caller, quiet.id, CommandRequest(cmd=cmd, **fields), wait=MINUTE
        )

    return start


async def test_activity__a_silent_command_that_a_request_waits_for_counts(server, quiet, start):
    command = await start("sleep 1000")
    await is_noted(server, quiet)
    await is_noted(server, quiet)
    await server.commands.signal(server.caller, quiet.id, command.id, ProcessSignal.KILL)
    await server.commands.wait_ended(command, wait=MINUTE)
    await is_paused_for_being_idle(server, quiet)


async def test_activity__output_of_a_background_command_counts(server, quiet, start):
    await start("while sleep 0.1; do echo x; done", background=True)
    await is_noted(server, quiet)
    await is_noted(server, quiet)


async def test_activity__neither_a_silent_background_command_nor_its_follower_counts(
    database, server, quiet, start
):
    command = await start("sleep 1000", background=True)
    streams = StreamHub(server.living.sessions, Notifications(database))
    source = CommandOutputSource(tenant_id=command.tenant_id, command_id=command.id)
    following = await streams.follow(source)
    async with aclosing(following.blocks()) as blocks:
        await anext(blocks)
        waiting = asyncio.create_task(anext(blocks))
        await is_paused_for_being_idle(server, quiet)
        assert not waiting.done()
        streams.end()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_activity__an_open_terminal_counts_only_with_output(server, quiet, start):
    size = TerminalSize(cols=80, rows=24)
    shell = await start("cat", kind=CommandKind.TERMINAL, size=size)
    async with noted(server, quiet):
        await server.commands.send_input(server.caller, quiet.id, shell.id, b"x")
    await is_paused_for_being_idle(server, quiet)
