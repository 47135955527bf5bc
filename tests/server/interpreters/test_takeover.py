"""Executions whose server ends."""

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from sandbox_server.commands.recording import CODE_INTERRUPTED
from sandbox_server.domain.commands import CommandState
from sandbox_server.interpreters.connection import InterpreterConnections
from sandbox_server.interpreters.recording import CodeCall
from sandbox_server.interpreters.service import CodeExecutions
from tests.engine.polling import until
from tests.server.commands.command_calls import MINUTE, has_written
from tests.server.interpreters.interpreter_sandbox import run_interpreter
from tests.server.support.in_process_server import running_server

pytestmark = pytest.mark.needs_engine

ENDLESS = CodeCall(
    code="kept = 5\nprint('on')\nwhile True: pass", language=None, context_id=None, env_vars={}
)
AFTERWARDS = CodeCall(code="kept", language=None, context_id=None, env_vars={})


def executions_of(server):
    return CodeExecutions(server.living.sessions, server.commands, InterpreterConnections())


async def start(server, sandbox_id, call):
    return await executions_of(server).start(server.caller, sandbox_id, call, timeout=10 * MINUTE)


async def test_server_stop__an_execution_ends_as_lost_with_a_reason_and_the_context_is_free(
    database, living, replica
):
    async with AsyncExitStack() as stopping:
        first = await stopping.enter_async_context(running_server(database, living))
        row = await first.running()
        access = first.controller.find_access(await living.row(row.id))
        await run_interpreter(living.backend.handle(access))
        execution = (await start(first, row.id, ENDLESS)).row
        await until(lambda: has_written(first, execution, b"on"))
    ended = await replica.commands.wait_ended(execution, wait=MINUTE)
    assert (ended.state, ended.state_reason) == (CommandState.LOST, CODE_INTERRUPTED)
    records = await executions_of(replica).read(ended)
    assert [one.content for one in records.output] == [b"on\n"]
    again = (await start(replica, row.id, AFTERWARDS)).row
    again = await replica.commands.wait_ended(again, wait=timedelta(seconds=30))
    [result, _] = (await executions_of(replica).read(again)).outcome
    assert (again.state, result.content) == (CommandState.EXITED, b'{"text":"5"}')
