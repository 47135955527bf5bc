"""Logs of services in real sandboxes, recorded while they are followed."""

import json
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Command
from sandbox_server.domain.commands import COMMAND_LIVING, CommandKind
from sandbox_server.domain.state import State
from sandbox_server.events.log_source import LogKind, LogSource
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.tools.service_logs import ServiceLogRecorder
from tests.engine.polling import until
from tests.server.commands.command_calls import run
from tests.server.support.socket_server import running

pytestmark = pytest.mark.needs_engine

SOON = timedelta(milliseconds=200)


@pytest.fixture
async def sandbox_id(server):
    return (await server.running()).id


@asynccontextmanager
async def service_logs_of(server, **options):
    """Record logs of services at a server, with short intervals."""
    living = server.living
    logs = ServiceLogRecorder(
        living.sessions,
        server.controller,
        server.commands,
        SandboxAccess(living.backends, living.vault),
        update_every=SOON,
        **options,
    )
    async with running(logs.run()):
        yield logs


async def write(server, sandbox_id, name, text):
    """Append to the log of a service."""
    cmd = f"sudo mkdir -p /var/log/sandbox && echo '{text}' | sudo tee -a '/var/log/sandbox/{name}' > /dev/null"
    assert (await run(server, sandbox_id, cmd)).exit_code == 0


async def recordings(server, sandbox_id):
    async with server.living.sessions() as session:
        found = select(Command).where(
            Command.sandbox_id == sandbox_id, Command.kind == CommandKind.SERVICE
        )
        return (await session.scalars(found.order_by(Command.id))).all()


async def read(server, sandbox_id):
    """Read the recorded output of each service of a sandbox."""
    source = LogSource(
        tenant_id=server.living.tenant_id,
        sandbox_ids=(sandbox_id,),
        kinds=frozenset({LogKind.SERVICE}),
    )
    page = await source.read(server.living.sessions, after=0, limit=1000)
    told = [json.loads(item.data) for item in page.items]
    names = {one["name"] for one in told}
    return {
        name: "".join(one.get("text", "") for one in told if one["name"] == name) for name in names
    }


async def test_service_logs__are_recorded_once_from_their_beginning_by_any_number_of_servers(
    server, replica, sandbox_id
):
    await write(server, sandbox_id, "web.log", "one")
    await write(server, sandbox_id, "not a log.txt", "nothing")
    await write(server, sandbox_id, "x;reboot;.log", "nothing")
    async with AsyncExitStack() as stack:
        for each in (server, replica, server):
            logs = await stack.enter_async_context(service_logs_of(each))
            stack.enter_context(logs.followed(each.caller, [sandbox_id]))

        async def is_told(expected):
            return await read(server, sandbox_id) == expected

        await until(lambda: is_told({"web": "one\n"}))
        await write(server, sandbox_id, "web.log", "two")
        await write(server, sandbox_id, "db.log", "three")  # later than the first look
        await until(lambda: is_told({"web": "one\ntwo\n", "db": "three\n"}))
        assert [row.name for row in await recordings(server, sandbox_id)] == ["web", "db"]


async def test_service_logs__recording_stops_without_followers_and_resumes_where_it_was(
    server, sandbox_id
):
    await write(server, sandbox_id, "web.log", "one")

    async def is_told(text):
        return await read(server, sandbox_id) == {"web": text}

    async def is_left():
        return {row.state in COMMAND_LIVING for row in await recordings(server, sandbox_id)} == {
            False
        }

    async with service_logs_of(server, recorded_for=2 * SOON) as logs:
        with logs.followed(server.caller, [sandbox_id]):
            await until(lambda: is_told("one\n"))
        await until(is_left)
        await write(server, sandbox_id, "web.log", "two")
        with logs.followed(server.caller, [sandbox_id]):
            await until(lambda: is_told("one\ntwo\n"))


async def test_service_logs__following_does_not_resume_a_sandbox(server, sandbox_id):
    sleeping, other = sandbox_id, (await server.running()).id
    for each in (sleeping, other):
        await write(server, each, "web.log", "one")
    await server.controller.pause(server.caller, sleeping)

    async def is_told(sandbox_id):
        return await read(server, sandbox_id) == {"web": "one\n"}

    async with service_logs_of(server) as logs:
        with logs.followed(server.caller, [sleeping, other]):
            await until(lambda: is_told(other))
            assert (await server.living.row(sleeping)).state is State.PAUSED
            assert await recordings(server, sleeping) == []
            await server.controller.resume(server.caller, sleeping)
            await until(lambda: is_told(sleeping))
