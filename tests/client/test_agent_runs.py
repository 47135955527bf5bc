from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient
from sandbox_client.events import AgentEnded, AgentMessage, AgentStarted
from sandbox_client.models import AgentRunState
from tests.server.agents import agent_stand_in

pytestmark = pytest.mark.needs_engine

FINISH = "say('started', agent=REQUEST['agent']); say('message', message={'n': 1}); result()"
WAIT = """
import signal
signal.signal(signal.SIGTERM, lambda *_: result("interrupted", "stopped"))
say("message", message="waiting")
signal.pause()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def agents(server):
    """Make a sandbox with a program that stands in for the agents."""
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base") as sandbox,
    ):
        await sandbox.files.upload(Path(agent_stand_in.__file__), "/tmp/sandbox-tools")
        cmd = "sudo install -m 755 /tmp/sandbox-tools /usr/local/bin/sandbox-tools"
        await sandbox.run(cmd, check=True)
        yield sandbox.id


@pytest.fixture
async def workplace(client, agents):
    return await client.get_sandbox(agents)


async def test_agent_run__runs_until_it_ends(workplace):
    run = await workplace.run_agent("claude", FINISH, model="m", timeout_s=60)
    assert run.state is AgentRunState.SUCCEEDED
    assert run.result.output == "done"
    assert run.result.changed_files == ["a.txt"]


async def test_agent_run__events_are_streamed(workplace):
    told: list[Any] = []
    run = await workplace.run_agent("codex", FINISH, on_event=told.append)
    assert [type(event) for event in told] == [AgentStarted, AgentMessage, AgentEnded]
    assert (told[0].agent, told[1].message, told[2].output) == ("codex", {"n": 1}, "done")
    assert told[0].run_id == run.id
    found = await workplace.get_agent_run(told[0].run_id)
    assert [event async for event in found.follow(after=told[0].id)] == told[1:]
    assert run.id in [one.id async for one in workplace.list_agent_runs()]
    assert [one.id async for one in workplace.list_agent_runs(running=True)] == []


async def test_agent_run__interrupt(workplace):
    run = await workplace.start_agent("claude", WAIT)
    async for event in run.follow():
        if isinstance(event, AgentMessage):
            break
    await run.interrupt()
    done = await run.wait()
    assert (done.state, done.result.output) == (AgentRunState.INTERRUPTED, "stopped")
