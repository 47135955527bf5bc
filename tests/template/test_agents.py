"""The real agents of a full sandbox, through the server, with a model on the sandbox's loopback."""

import json
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect

from tests.engine.polling import until
from tests.server.support.event_reader import following
from tests.template.models import AGENTS, CLAUDE, CODEX
from tests.tools.agent_server_process import AgentClient

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PATIENCE_S = 120
TELL_COSTS = {"claude", "opencode"}
# By what they say that they are at work. An interrupt before that is lost on Codex, which then is ended by force.
AT_WORK = {"claude": "system", "codex": "turn.started"}


@pytest.fixture
async def caller(workplace):
    async with workplace.server.client() as caller:
        yield caller


@pytest.fixture
def runs(workplace):
    return f"{workplace.path}/agent/runs"


@pytest.fixture
def told_file(workplace):
    workplace.write("/workspace/told.txt", "written in the sandbox\n")
    return "/workspace/told.txt"


def asked(agent, prompt, **options):
    return {"agent": agent.name, "model": agent.model, "prompt": prompt, **options}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_agent_run__streams_events_replays_them_and_continues(caller, runs, told_file, agent):
    body = asked(agent, agent.order(told_file))
    async with following(caller, runs, method="POST", json=body) as stream:
        told = await stream.rest()
    result = told[-1].data
    assert (result["state"], result["exit_code"]) == ("succeeded", 0), result
    assert "written in the sandbox" in result["output"]
    assert {one.data["type"] for one in told[1:-1]} == {"message"}
    assert told[0].data == {
        **told[0].data,
        "type": "started",
        "agent": agent.name,
        "session_id": result["session_id"],
    }
    assert (result["cost"] is None) == (agent.name not in TELL_COSTS)

    listed = (await caller.get(runs)).json()["items"]
    run = next(one for one in listed if one["prompt"] == body["prompt"])
    seen = told[len(told) // 2]
    async with following(caller, f"{runs}/{run['id']}/events", after=seen.id) as stream:
        assert await stream.rest() == told[told.index(seen) + 1 :]
    outcome = (await caller.get(f"{runs}/{run['id']}")).json()
    assert outcome["result"]["output"] == result["output"]

    more = asked(agent, "model, run: echo once more", session_id=result["session_id"])
    again = (await caller.post(runs, json=more)).json()
    assert again["result"]["output"].startswith("2 prompts; the tool said:"), again
    assert "once more" in again["result"]["output"]


async def test_agent_run__resumes_a_sandbox_paused_after_a_run(caller, runs, workplace, told_file):
    body = asked(CLAUDE, CLAUDE.order(told_file), pause_after=True)
    run = (await caller.post(runs, json=body)).json()
    assert run["state"] == "succeeded", run

    async def is_paused():
        return (await caller.get(workplace.path)).json()["state"] == "paused"

    await until(is_paused, timeout=PATIENCE_S)
    more = asked(CLAUDE, "model, run: echo awake", session_id=run["result"]["session_id"])
    again = (await caller.post(runs, json=more)).json()
    assert again["result"]["output"] == "2 prompts; the tool said: awake"


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: agent.name)
async def test_agent_run__a_hanging_agent_is_interrupted(caller, runs, agent):
    body = asked(agent, "model, hang")
    async with following(caller, runs, method="POST", json=body) as stream:
        while (await stream.until("message")).data["message"]["type"] != AT_WORK[agent.name]:
            pass
        [run] = (await caller.get(runs, params={"running": True})).json()["items"]
        assert (await caller.post(f"{runs}/{run['id']}/interrupt")).status_code == 204
        result = await stream.until("result")
    assert (result.data["state"], result.data["exit_code"]) == ("interrupted", 130)
    assert (await caller.get(f"{runs}/{run['id']}")).json()["state"] == "interrupted"


@asynccontextmanager
async def talking(workplace):
    """Talk with the agent server, through the server."""
    url = workplace.urls["agent"]
    async with connect(url, additional_headers=workplace.headers, proxy=None) as socket:
        yield AgentClient(socket)


async def test_agent_socket__a_new_connection_receives_missed_events(workplace, told_file):
    workplace.run("rm -f /workspace/go")
    waiting = "until [ -e /workspace/go ]; do read -t 0.1 </dev/null || :; done; echo went on"
    async with talking(workplace) as client:
        await client.ask(type="prompt", prompt=f"model, run: {waiting}")
        seen = (await client.until("message"))[-1]
    workplace.run("touch /workspace/go")
    session = seen["session_id"]
    async with talking(workplace) as client:
        await client.ask(type="attach", session_id=session, after=seen["seq"])
        rest = await client.until("result")
        assert [event["seq"] for event in rest] == [
            *range(seen["seq"] + 1, seen["seq"] + 1 + len(rest))
        ]
        assert rest[-1]["output"] == "1 prompts; the tool said: went on"
        events = await client.prompt(CLAUDE.order(told_file), session_id=session)
    assert "written in the sandbox" in events[-1]["output"]
    assert "tool_use" in json.dumps(events)


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: agent.name)
async def test_agent_socket__interrupts_an_agent(workplace, agent):
    async with talking(workplace) as client:
        await client.ask(type="prompt", agent=agent.name, prompt="model, hang")
        while (event := (await client.until("message"))[-1])["message"]["type"] != AT_WORK[
            agent.name
        ]:
            pass
        await client.ask(type="interrupt", session_id=event["session_id"])
        result = (await client.until("result"))[-1]
    assert result["state"] == "interrupted"
