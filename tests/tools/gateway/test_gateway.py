import asyncio
import json
import sys

import pytest

from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.gateway import Gateway
from sandbox_tools.gateway.upstream import State, Timeouts
from tests.tools.gateway.conftest import stdio_server
from tests.tools.gateway.processes import alive, until, until_gone


def python(code):
    return {"command": sys.executable, "args": ["-c", code]}


async def no_progress(*_):
    return None


async def call(gateway, name, tool, **arguments):
    result = await gateway.upstreams[name].call(tool, arguments, no_progress)
    return result.content[0].text


async def processes(gateway, name):
    return json.loads(await call(gateway, name, "processes"))


async def until_state(gateway, name, state):
    await until(lambda: (status := gateway.status(name)) and status.state is state)


async def test_gateway__restarts_only_servers_whose_configuration_changed(files, gateway):
    files.set({name: stdio_server() for name in ("kept", "changed", "removed", "disabled")})
    for name in ("kept", "changed", "removed", "disabled"):
        await until_state(gateway, name, State.READY)
    before = {name: await processes(gateway, name) for name in gateway.upstreams}
    files.set(
        {
            "kept": stdio_server(description="the same in other words"),
            "changed": stdio_server(env={"A": "1"}),
            "disabled": stdio_server(disabled=True),
            "added": stdio_server(),
        }
    )
    await until_state(gateway, "added", State.READY)
    await until_state(gateway, "changed", State.READY)
    assert gateway.upstreams.keys() == {"kept", "changed", "added"}
    assert await processes(gateway, "kept") == before["kept"]
    assert await processes(gateway, "changed") != before["changed"]
    for name in ("changed", "removed", "disabled"):
        assert not any(map(alive, before[name]))


async def test_gateway__servers_get_sandbox_and_own_variables_but_no_token(files, gateway):
    own = {"BOTH": "own", "MADE": "of-${KEY}"}
    envs = {"KEY": "k", "BOTH": "sandbox's"}
    files.set({"one": stdio_server(env=own)}, envs=envs, token="s3cret", password="s3cret")
    await until_state(gateway, "one", State.READY)
    environment = json.loads(await call(gateway, "one", "environment"))
    assert (environment["KEY"], environment["BOTH"], environment["MADE"]) == ("k", "own", "of-k")
    assert not any("s3cret" in value for value in environment.values())


async def test_gateway__grandchildren_end_with_their_server(files, gateway):
    files.set({"one": stdio_server("--start-a-grandchild", "--stay")})
    await until_state(gateway, "one", State.READY)
    pids = await processes(gateway, "one")
    assert len(pids) == 2
    files.set({})
    await until_gone(pids)


async def test_gateway__a_crashed_server_is_reported_and_restarted(files, gateway, tmp_path):
    files.set({"one": stdio_server()})
    await until_state(gateway, "one", State.READY)
    [first] = await processes(gateway, "one")
    with pytest.raises(UpstreamError, match="ended"):
        await call(gateway, "one", "crash")
    await until(lambda: not alive(first))
    await until_state(gateway, "one", State.READY)
    assert (tmp_path / "mcp-one.log").read_text() == "a crash was asked for\n"
    assert await processes(gateway, "one") != [first]


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"command": "no-such-program"}, "Its command is not installed."),
        ({"command": "true", "cwd": "nowhere"}, "Its cwd is not a directory."),
        (python("raise SystemExit(5)"), "Its process ended with status 5."),
        (python("while True: print('all work and no play')"), "Its stdout is not MCP."),
        (python("while True: print('[' * 100000, end='')"), "Its stdout is not MCP."),
        (python("import os, time; os.close(1); time.sleep(600)"), "It closed its stdout."),
        ({"url": "http://127.0.0.1:1/mcp"}, "Connection refused. Check that it is running and that the url is correct."),
        ({"url": "${NOWHERE}"}, "url uses the variable NOWHERE, which is not set. Set it in the sandbox's envs or write ${NOWHERE:-DEFAULT}."),
        (3, "command must be a non-empty string."),
    ],
    ids=str,
)  # fmt: skip
async def test_gateway__a_failed_server_is_reported_and_does_not_affect_others(
    files, gateway, entry, sentence
):
    files.set({"dead": entry, "well": stdio_server()})
    await until_state(gateway, "dead", State.FAILED)
    await until_state(gateway, "well", State.READY)
    assert gateway.health()["dead"] == {"state": "failed", "tools": 0, "error": sentence}
    assert gateway.health()["well"] == {"state": "ready", "tools": 6}
    assert await call(gateway, "well", "say", text="hello") == "hello"


async def test_gateway__lone_surrogates_become_question_marks(files, gateway):
    files.set({"one": stdio_server("--half-a-character")})
    await until_state(gateway, "one", State.READY)
    assert await call(gateway, "one", "say", text="cut: ") == "cut: ?"


async def test_gateway__an_invalid_result_is_an_error(files, gateway):
    files.set({"one": stdio_server("--no-content")})
    await until_state(gateway, "one", State.READY)
    with pytest.raises(UpstreamError, match="sent invalid MCP messages"):
        await call(gateway, "one", "say", text="hello")


async def test_gateway__long_tool_lists_are_limited_per_server_and_in_total(files, gateway):
    names = [f"long-{number}" for number in range(4)]
    files.set(
        {name: stdio_server("--long-descriptions") for name in names} | {"well": stdio_server()}
    )
    for name in (*names, "well"):
        await until_state(gateway, name, State.READY)
    assert gateway.health()["long-0"] == {
        "state": "ready",
        "tools": 1,
        "error": "5 of its 6 tools are not listed: the tool list has reached its maximum size.",
    }
    assert [upstream.name for upstream in gateway.listed()] == [*names[:3], "well"]
    assert "not listed" in str(gateway.status("long-3").failure)
    assert await call(gateway, "long-3", "say", text="hello") == "hello"


async def test_gateway__a_silent_server_times_out_and_its_processes_end(files, tmp_path):
    gateway = Gateway(
        files.sources(),
        directory=tmp_path,
        logs=tmp_path,
        timeouts=Timeouts(start=0.5, retry=600, longest_retry=600),
    )
    pid = tmp_path / "pid"
    files.set({"one": python(f"import os,time; print(os.getpid(), file=open('{pid}', 'w')); time.sleep(600)")})  # fmt: skip
    async with gateway.serving():
        await until_state(gateway, "one", State.FAILED)
        assert "did not complete the MCP handshake in time" in gateway.health()["one"]["error"]
        await until(lambda: not pid.exists() or not alive(int(pid.read_text())))


async def test_gateway__ends_all_processes_at_shutdown(files, tmp_path):
    gateway = Gateway(files.sources(), directory=tmp_path, logs=tmp_path)
    files.set({name: stdio_server("--start-a-grandchild", "--stay") for name in "ab"})
    async with gateway.serving():
        for name in "ab":
            await until_state(gateway, name, State.READY)
        pids = [pid for name in "ab" for pid in await processes(gateway, name)]
    assert not any(map(alive, pids))
    assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"mcp-a", "mcp-b"})
