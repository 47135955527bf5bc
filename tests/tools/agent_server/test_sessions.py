"""The real Claude Code, with a model that does what the prompt says."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.tools.agent_server_process import TIMEOUT_SECONDS, started_agent_server


def messages(events, kind):
    return [
        event["message"]
        for event in events
        if event["type"] == "message" and event["message"]["type"] == kind
    ]


async def no_process_is_left(server):
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while children.read_text():  # noqa: ASYNC110 - nobody else hears of it
            await asyncio.sleep(0.05)


async def test_session__streams_messages_up_to_the_result(agent_server, client):
    events = await client.prompt("model, run: echo hello > greeting.txt; cat greeting.txt")
    assert (agent_server.workspace / "greeting.txt").read_text() == "hello\n"
    assert [event["seq"] for event in events] == [
        *range(events[0]["seq"], events[0]["seq"] + len(events))
    ]
    started, result = events[0], events[-1]
    assert (started["type"], started["agent"]) == ("started", "claude")
    [use] = messages(events, "assistant")[0]["content"]
    assert (use["type"], use["name"]) == ("tool_use", "Bash")
    [told] = messages(events, "user")[0]["content"]
    assert (told["type"], told["content"]) == ("tool_result", "hello")
    assert result["state"] == "succeeded"
    assert result["output"] == "1 prompts; the tool said: hello"
    assert result["changed_files"] == ["greeting.txt"]
    assert result["session_id"] == started["session_id"]
    assert result["cost"] > 0


async def test_session__continues_the_conversation(client):
    first = await client.prompt("model, run: true")
    second = await client.prompt("model, run: echo two", session_id=first[-1]["session_id"])
    assert second[-1]["output"] == "2 prompts; the tool said: two"


async def test_session__refuses_a_second_prompt_while_busy(client):
    await client.ask(type="prompt", prompt="model, hang")
    [started] = await client.until("started")
    session = started["session_id"]
    await client.ask(type="prompt", prompt="model, say: no", session_id=session, id="second")
    refused = (await client.until("refused"))[-1]
    assert (refused["code"], refused["id"]) == ("busy", "second")
    await client.ask(type="interrupt", session_id=session)
    assert (await client.until("result"))[-1]["state"] == "interrupted"


@pytest.mark.slow  # runs the agent's program twice
async def test_session__can_continue_after_an_interrupt(agent_server, client):
    agent_server.model.hanging.clear()
    await client.ask(type="prompt", prompt="model, hang")
    session = (await client.until("message"))[-1]["session_id"]
    await client.ask(type="interrupt", session_id=session)
    result = (await client.until("result"))[-1]
    assert (result["state"], result["exit_code"]) == ("interrupted", 130)
    assert "Interrupted." in result["output"]
    again = await client.prompt("model, run: echo on", session_id=session)
    assert again[-1]["output"] == "2 prompts; the tool said: on"


async def test_session__reconnecting_clients_receive_missed_events(agent_server):
    async with agent_server.client() as client:
        await client.ask(
            type="prompt",
            prompt="model, run: until [ -e go ]; do read -t 0.1 < /dev/null || :; done",
        )
        seen = await client.until("message")
    (agent_server.workspace / "go").touch()
    async with agent_server.client() as client:
        await client.ask(type="attach", session_id=seen[-1]["session_id"], after=seen[-1]["seq"])
        rest = await client.until("result")
    assert rest[0]["seq"] == seen[-1]["seq"] + 1
    assert rest[-1]["state"] == "succeeded"


@pytest.mark.slow  # runs the agent's program three times
async def test_session__resumes_by_id_after_a_restart(tmp_path):
    async with started_agent_server(tmp_path) as server:
        (server.workspace / "sub").mkdir()
        async with server.client() as client:
            first = (await client.prompt("model, run: true", cwd="sub"))[-1]
        await server.stop()
        await server.start("--idle-s", "0.5")
        async with server.client() as client:
            session = first["session_id"]
            await client.ask(type="attach", session_id=session, after=first["seq"])
            assert (await client.next())["code"] == "unknown-session"
            again = await client.prompt("model, run: pwd", session_id=session)
            await client.ask(type="attach", session_id=session, after=first["seq"])
            gap = await client.until("gap")
            await client.until("result")
            await no_process_is_left(server)
            third = await client.prompt("model, run: echo on", session_id=session)
    assert again[-1]["output"] == f"2 prompts; the tool said: {server.workspace / 'sub'}"
    assert third[-1]["output"] == "3 prompts; the tool said: on"
    assert gap[-1]["after"] == first["seq"]
    assert gap[-1]["until"] == again[0]["seq"] - 1


async def test_session__a_prompt_ends_at_its_timeout(client):
    events = await client.prompt("model, hang", timeout_s=0.5)
    assert (events[-1]["state"], events[-1]["exit_code"]) == ("timed_out", 124)
    assert "Stopped after 0.5 seconds" in events[-1]["output"]


async def test_session__a_failed_agent_reports_the_reason(agent_server, client):
    events = await client.prompt("model, say: hi", envs={"ANTHROPIC_API_KEY": ""}, max_turns=1)
    assert events[-1]["state"] == "failed"
    assert "Claude Code failed" in events[-1]["output"]


async def test_session__max_turns_is_enforced(client):
    events = await client.prompt("model, run: true", max_turns=1)
    assert events[-1]["state"] == "failed"
    assert "(max_turns)" in events[-1]["output"]


async def test_session__the_agent_gets_the_tool_server_without_a_token_in_arguments(
    agent_server, client
):
    events = await client.prompt("model, run: tr '\\0' ' ' < /proc/$PPID/cmdline; env")
    [servers] = [
        each["mcp_servers"] for each in messages(events, "system") if "mcp_servers" in each
    ]
    assert "sandbox" in [server["name"] for server in servers]
    told = json.dumps(messages(events, "user"))
    assert "--mcp-config" in told
    assert agent_server.token not in told


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": ""}, "`prompt` must be a non-empty string."),
        ({"prompt": "x", "colour": "blue"}, "Unknown fields: colour."),
        ({"prompt": "x", "session_id": "../x"}, "`session_id` must be"),
        ({"prompt": "x", "model": "--help"}, "`model` must be"),
        ({"prompt": "x", "timeout_s": True}, "`timeout_s` must be"),
        ({"prompt": "x", "cwd": "/nowhere"}, "cwd /nowhere is not a directory"),
        ({"prompt": "x", "cwd": "~nobody-here/x"}, "is not a directory"),
        ({"prompt": "x", "cwd": "x" * 5_000}, "is not a directory"),
        ({"prompt": "x", "agent": "gemini"}, "gemini is not installed in this sandbox."),
    ],
)
async def test_session__invalid_requests_are_refused_with_a_message(client, asked, said):
    await client.ask(type="prompt", **asked)
    refused = await client.next()
    assert refused["type"] == "refused"
    assert said in refused["error"]
