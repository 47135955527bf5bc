"""How an agent's program is run, with a small one in the place of opencode."""

import json
import os
import signal
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.agent_server_process import AgentServer
from tests.tools.model_endpoint import ModelEndpoint

SAYS = 'import json, os, sys, time\nprompt = sys.stdin.read()\nsay = lambda text: print(json.dumps({"type": "text", "sessionID": "ses_1", "part": {"text": text}}), flush=True)\n'


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("headless")
    opencode = place / "bin/opencode"
    opencode.parent.mkdir()
    opencode.write_text('#!/bin/sh\nexec python3 -c "$PROGRAM"\n')
    opencode.chmod(0o755)
    with ModelEndpoint() as model:
        server = AgentServer(place, model, programs=str(opencode.parent))
        await server.start("--most-running", "1", "--stop-s", "1")
        try:
            yield server
        finally:
            await server.stop()


@pytest_asyncio.fixture
async def client(server):
    async with server.client() as client:
        yield client


def runs(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def doing(program):
    return {"agent": "opencode", "envs": {"PROGRAM": SAYS + program}}


async def test_headless__passes_long_prompts_through_stdin(client):
    prompt = "x" * 1_000_000
    events = await client.prompt(prompt, **doing("say(str(len(prompt)))"))
    assert (events[-1]["state"], events[-1]["output"]) == ("succeeded", "1000000")


async def test_headless__remaining_child_processes_do_not_delay_the_result(client):
    left = "import subprocess; say(str(subprocess.Popen(['sleep', '600']).pid))"
    events = await client.prompt("go", **doing(left))
    assert events[-1]["state"] == "succeeded"
    os.kill(int(events[-1]["output"]), signal.SIGKILL)


async def test_headless__a_failed_program_is_reported_with_its_output(client):
    events = await client.prompt("go", **doing("sys.exit('there is no key')"))
    assert events[-1]["state"] == "failed"
    assert "exit code 1" in events[-1]["output"]
    assert "there is no key" in events[-1]["output"]


async def test_headless__ignores_invalid_and_overlong_lines(client):
    program = "print('{' * 100_000); print('null'); print('x' * (17 << 20)); say('well')"
    events = await client.prompt("go", **doing(program))
    assert events[-1]["output"] == "well"
    assert [event["message"]["type"] for event in events[1:-1]] == ["cut", "text"]


@pytest.mark.parametrize("shape", ['{"part": []}', '{"type": "text", "part": 1}', '{"item": "x"}'])
async def test_headless__unknown_events_still_lead_to_a_result(client, shape):
    events = await client.prompt("go", **doing(f"print({shape!r}); say('well')"))
    assert events[-1]["type"] == "result"


@pytest.mark.slow  # waits until interrupts are given up
async def test_headless__kills_a_program_that_ignores_interrupts_and_its_children(client, server):
    stubborn = (
        "import signal, subprocess\n"
        "for number in (2, 15): signal.signal(number, signal.SIG_IGN)\n"
        "say(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    )
    await client.ask(type="prompt", prompt="go", **doing(stubborn))
    told = (await client.until("message"))[-1]
    pid = told["message"]["part"]["text"]
    await client.ask(type="interrupt", session_id=told["session_id"])
    result = (await client.until("result"))[-1]
    assert result["state"] == "interrupted"
    assert not runs(pid)


async def test_headless__an_interrupt_ends_detached_processes_that_ignore_signals(client):
    stubborn = "trap '' INT TERM HUP; echo $$ >detached; while :; do sleep 1; done"
    program = (
        "import subprocess\n"
        f"subprocess.Popen(['setsid', '--fork', 'sh', '-c', {stubborn!r}])\n"
        "while not os.path.exists('detached'): time.sleep(0.01)\n"
        "say(open('detached').read()); time.sleep(600)"
    )
    await client.ask(type="prompt", prompt="go", **doing(program))
    told = (await client.until("message"))[-1]
    await client.ask(type="interrupt", session_id=told["session_id"])
    assert (await client.until("result"))[-1]["state"] == "interrupted"
    assert not runs(told["message"]["part"]["text"].strip())


async def test_sessions__the_number_of_running_agents_is_limited(client):
    await client.ask(type="prompt", prompt="go", **doing("time.sleep(600)"))
    session = (await client.until("started"))[-1]["session_id"]
    await client.ask(type="prompt", prompt="go", **doing("say('no')"))
    assert (await client.until("refused"))[-1]["code"] == "too-many-running"
    await client.ask(type="interrupt", session_id=session)
    assert (await client.until("result"))[-1]["state"] == "interrupted"


async def test_headless__unsupported_options_are_refused(client):
    events = await client.prompt("go", max_turns=3, **doing("say('no')"))
    assert events[-1]["state"] == "failed"
    assert events[-1]["output"] == "opencode does not support `max_turns`. Omit it."
    assert json.dumps(events).count("say") == 0
