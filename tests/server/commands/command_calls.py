"""Start commands at a real provider and read their rows and records."""

from datetime import timedelta

from sandbox_server.domain.commands import CommandRequest
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType

MINUTE = timedelta(minutes=1)


async def start(server, sandbox_id, cmd, **fields):
    request = CommandRequest(cmd=cmd, **fields)
    return await server.commands.start(server.caller, sandbox_id, request, wait=MINUTE)


async def run(server, sandbox_id, cmd, **fields):
    started = await start(server, sandbox_id, cmd, **fields)
    return await server.commands.wait_ended(started, wait=MINUTE)


async def records(server, command):
    async with server.living.sessions() as session:
        part = await CommandOutputRepository(session).list_after(command.id, after=0, limit=10_000)
    return part.records


async def written(server, command, stream=RecordType.STDOUT):
    return b"".join(one.content for one in await records(server, command) if one.type is stream)


async def has_written(server, command, text):
    return text in await written(server, command)


async def gaps(server, command):
    """List the reasons of gaps."""
    return [
        one.data["reason"] for one in await records(server, command) if one.type is RecordType.GAP
    ]
