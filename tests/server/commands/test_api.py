"""Commands over HTTP, on a real server and engine."""

import asyncio
import base64
import os
import subprocess

import httpx
import pytest
import pytest_asyncio

from tests.docs.blocks import BY_HTTP
from tests.engine.polling import until
from tests.server.support.databases import new_database
from tests.server.support.event_reader import following
from tests.server.support.server_process import server_process, variables_of

pytestmark = pytest.mark.needs_engine

ABSENT = "0" * 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(bundled_url, engine):
    async with new_database(bundled_url) as url:
        with server_process("--lease-s", "2", variables=variables_of(engine, url)) as server:
            server.start()
            yield server


@pytest.fixture(scope="module")
def sandbox(server):
    """Create one sandbox for all tests; returns its path."""
    headers = {"X-API-Key": server.admin_key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as caller:
        made = caller.post("/v1/sandboxes", json={})
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        yield path
        caller.delete(path)


@pytest.fixture
async def caller(server):
    async with server.client() as caller:
        yield caller


@pytest.fixture
def run(caller, sandbox):
    """Run a command and wait for its end by default."""

    async def run(cmd, *, params=None, headers=None, **body):
        return await caller.post(
            f"{sandbox}/commands", params=params, headers=headers, json={"cmd": cmd, **body}
        )

    return run


@pytest.fixture
def begin(run, sandbox):
    """Start a command in the background; returns its path."""

    async def begin(cmd, **body):
        begun = await run(cmd, background=True, **body)
        assert begun.status_code == 201, begun.text
        assert begun.json()["state"] == "running"
        return begun.headers["Location"]

    return begin


@pytest.fixture
def ended(caller):
    """Wait until a command has ended; returns its representation."""

    async def ended(path):
        async def find():
            told = (await caller.get(path)).json()
            return told if told["ended_at"] else None

        return await until(find, timeout=30)

    return ended


async def test_run_command__returns_the_complete_output_of_an_ended_command(run, sandbox):
    ran = await run("echo out; echo err >&2; cd /; exit 3", cwd="/tmp", envs={"A": "b"})
    assert ran.status_code == 201
    told = ran.json()
    assert ran.headers["Location"] == f"{sandbox}/commands/{told['id']}"
    assert (told["state"], told["exit_code"]) == ("exited", 3)
    assert (told["stdout"], told["stderr"]) == ("out\n", "err\n")
    assert (told["stdout_size"], told["stderr_size"]) == (4, 4)
    assert told["stdout_cut"] is told["stderr_cut"] is None
    assert told["created_at"] <= told["started_at"] <= told["ended_at"]
    assert "envs" not in told


async def test_run_command__applies_cwd_envs_and_user(run):
    ran = await run('pwd; echo "$A"; whoami', cwd="/tmp", envs={"A": "ü b"}, user="root")
    assert ran.json()["stdout"] == "/tmp\nü b\nroot\n"


async def test_command_output__returns_binary_output_unchanged(caller, run):
    ran = (await run(r"printf 'a\xff\x00b'")).json()
    assert ran["stdout"] == "a\N{REPLACEMENT CHARACTER}\0b"
    path = f"/v1/sandboxes/{ran['sandbox_id']}/commands/{ran['id']}/output"
    part = (await caller.get(path)).json()
    [item] = part["items"]
    assert base64.b64decode(item["base64"]) == b"a\xff\0b"
    assert "text" not in item
    assert (part["next_offset"], part["size"], part["cut"], part["state"]) == (4, 4, 0, "exited")
    rest = (await caller.get(path, params={"offset": 3})).json()
    assert [(one["offset"], one["text"]) for one in rest["items"]] == [(3, "b")]
    assert (await caller.get(path, params={"stream": "stderr"})).json()["items"] == []


async def test_command_output__streams_while_the_command_runs_and_reads_input(
    caller, begin, server
):
    path = await begin("echo one; read line; echo two $line", stdin=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
    head = f"GET {path}/output HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.admin_key}\r\n"
    writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    async with asyncio.timeout(20):
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b'"text":"one\\n"')
        sent = await caller.post(f"{path}/input", json={"text": "and more\n"})
        assert sent.status_code == 204, sent.text
        await reader.readuntil(b'"text":"two and more\\n"')
        await reader.readuntil(b'"type":"exit"')
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()


async def test_run_command__streams_output_from_the_start(caller, sandbox):
    body = {"cmd": "echo out; echo err >&2; exit 3"}
    async with following(caller, f"{sandbox}/commands", method="POST", json=body) as stream:
        told = [one.data for one in await stream.rest()]
    assert [one["type"] for one in told][:1] == ["started"]
    assert {(one["type"], one.get("text")) for one in told[1:-1]} == {
        ("stdout", "out\n"),
        ("stderr", "err\n"),
    }
    assert (told[-1]["type"], told[-1]["state"], told[-1]["exit_code"]) == ("exit", "exited", 3)


async def test_run_command__stream_contains_the_command_id_and_the_path_to_resume(caller, sandbox):
    paused = await caller.post(f"{sandbox}/pause", params={"wait": 60})
    assert paused.json()["state"] == "paused", paused.text
    body = {"cmd": "echo one; sleep 0.3; echo two"}
    async with following(caller, f"{sandbox}/commands", method="POST", json=body) as stream:
        command, again = stream.headers["Location"], stream.headers["Content-Location"]
        first = await anext(stream)
    assert first.data["type"] == "started"
    assert command == f"{sandbox}/commands/{first.data['command_id']}"
    assert (await caller.get(command)).json()["cmd"] == body["cmd"]
    async with following(caller, again, after=first.id) as stream:
        told = [one.data for one in await stream.rest()]
    assert "".join(one.get("text", "") for one in told) == "one\ntwo\n"


async def test_command_input__arrives_byte_for_byte_until_it_is_closed(caller, begin, ended):
    path = await begin("cat", stdin=True)
    sent = bytes(range(256))
    given = {"base64": base64.b64encode(sent).decode(), "close": True}
    assert (await caller.post(f"{path}/input", json=given)).status_code == 204
    assert (await ended(path))["exit_code"] == 0
    part = (await caller.get(f"{path}/output")).json()
    got = b"".join(
        base64.b64decode(one["base64"]) if "base64" in one else one["text"].encode()
        for one in part["items"]
    )
    assert got == sent


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
async def test_command_signal__ends_a_command(caller, begin, ended, signal):
    path = await begin("exec sleep 100")
    assert (await caller.post(f"{path}/signal", json={"signal": signal})).status_code == 204
    told = await ended(path)
    assert (told["state"], told["exit_code"]) == ("killed", None)
    assert told["state_reason"]
    again = await caller.post(f"{path}/signal", json={"signal": signal})
    assert (again.status_code, again.json()["code"]) == (409, "command-not-running")


async def test_command_signal__interrupt_reaches_child_processes(caller, begin, ended):
    path = await begin("trap 'echo told; exit 5' INT; echo begun; sleep 100; echo never")
    async with following(caller, f"{path}/output") as stream:
        await stream.until("stdout")
    assert (await caller.post(f"{path}/signal", json={"signal": "SIGINT"})).status_code == 204
    told = await ended(path)
    assert (told["exit_code"], told["stdout"]) == (5, "begun\ntold\n")


async def test_command_timeout__kills_the_command_and_its_children(run):
    ran = (await run("echo begun; sleep 4321; echo never", timeout_s=1)).json()
    assert (ran["state"], ran["stdout"], ran["timeout_s"]) == ("timed_out", "begun\n", 1)
    assert ran["state_reason"]
    assert (await run("ps -e -o args= | grep -x 'sleep 4321'")).json()["stdout"] == ""


async def test_run_command__returns_202_when_the_wait_is_over(caller, run, ended):
    ran = await run("read line", stdin=True, params={"wait": 0})
    assert ran.status_code == 202, ran.text
    assert ran.headers["Retry-After"]
    assert ran.json()["state"] in {"starting", "running"}
    path = ran.headers["Location"]
    await until(lambda: is_in(caller, path, "running"))
    assert (await caller.post(f"{path}/input", json={"close": True})).status_code == 204
    assert (await ended(path))["state"] == "exited"


async def test_idempotency_key__a_repeated_request_runs_no_second_command(run):
    headers = {"Idempotency-Key": "once"}
    each = [await run("echo x >> /tmp/once; cat /tmp/once", headers=headers) for _ in range(2)]
    assert [one.status_code for one in each] == [201, 201]
    assert each[0].json() == each[1].json()
    assert each[0].json()["stdout"] == "x\n"
    other = await run("true", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")


async def test_run_command__a_disconnect_does_not_kill_the_command(caller, sandbox, run, ended):
    body = {"cmd": "until [ -e /tmp/go ]; do sleep 0.05; done; echo went"}
    async with following(caller, f"{sandbox}/commands", method="POST", json=body) as stream:
        await stream.until("started")
    [command] = [
        one
        for one in (await caller.get(f"{sandbox}/commands")).json()["items"]
        if one["cmd"] == body["cmd"]
    ]
    assert command["state"] == "running"
    await run("touch /tmp/go")
    assert (await ended(f"{sandbox}/commands/{command['id']}"))["stdout"] == "went\n"


async def test_command_output__resumes_after_last_event_id_and_ends_with_204(caller, begin):
    path = await begin("echo one; read line; echo two; echo three >&2", stdin=True)
    async with following(caller, f"{path}/output") as first:
        last = await first.until("stdout")
    await caller.post(f"{path}/input", json={"close": True})
    async with following(caller, f"{path}/output", after=last.id) as second:
        told = await second.rest()
    assert sorted(one.data.get("text", "") for one in told) == ["", "three\n", "two\n"]
    assert told[-1].data["type"] == "exit"
    for params in ({"after": told[-1].id}, {"tail": 0}):
        over = await caller.get(
            f"{path}/output", params=params, headers={"Accept": "text/event-stream"}
        )
        assert (over.status_code, over.content) == (204, b"")
    async with following(caller, f"{path}/output", params={"tail": 1}) as stream:
        assert [one.data["type"] for one in await stream.rest()] == ["exit"]


async def test_command_output__a_pause_neither_loses_nor_repeats_output(caller, sandbox, begin):
    path = await begin("echo before; read line; echo after $line", stdin=True)
    async with following(caller, f"{path}/output") as stream:
        await stream.until("stdout")
        assert (await caller.post(f"{sandbox}/pause")).status_code == 200
        assert (await caller.get(path)).json()["state"] == "running"
        assert (await caller.post(f"{sandbox}/resume")).status_code == 200
        assert (await stream.until("gap")).data["reason"]
        assert (await caller.post(f"{path}/input", json={"text": "all\n"})).status_code == 204
        told = [one.data for one in await stream.rest()]
    written = [(one["offset"], one["text"]) for one in told if one["type"] == "stdout"]
    assert written == [(0, "before\n"), (7, "after all\n")]
    assert (told[-1]["state"], told[-1]["exit_code"]) == ("exited", 0)


async def test_command_input__output_after_input_that_resumes_the_sandbox_is_not_lost(
    caller, sandbox, begin, ended
):
    path = await begin("read line; echo woken by $line", stdin=True)
    assert (await caller.post(f"{sandbox}/pause")).status_code == 200
    sent = await caller.post(f"{path}/input", json={"text": "this\n"})
    assert sent.status_code == 204, sent.text
    told = await ended(path)
    assert (told["state"], told["exit_code"]) == ("exited", 0)
    assert told["stdout"] == "woken by this\n"


async def test_command_input__is_refused_if_the_command_has_no_stdin(caller, begin, run):
    path = await begin("exec sleep 100")
    refused = await caller.post(f"{path}/input", json={"text": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "stdin-closed")
    await caller.post(f"{path}/signal", json={"signal": "SIGKILL"})
    path = (await run("true")).headers["Location"]
    refused = await caller.post(f"{path}/input", json={"text": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "command-not-running")


@pytest.mark.parametrize(
    "body",
    [{"text": "x", "base64": "eA=="}, {"base64": "?"}, {"text": "x", "then": 1}],
    ids=["both", "neither", "more"],
)
async def test_command_input__invalid_input_is_refused(caller, run, body):
    path = (await run("true")).headers["Location"]
    assert (await caller.post(f"{path}/input", json=body)).status_code == 422


async def test_command_signal__an_unknown_signal_is_refused_with_the_list_of_known_ones(
    caller, run
):
    path = (await run("true")).headers["Location"]
    refused = await caller.post(f"{path}/signal", json={"signal": "SIGSTOP"})
    assert refused.status_code == 422
    assert "SIGTERM" in refused.json()["errors"][0]["detail"]


@pytest.mark.parametrize("wrong", [{"cwd": "/nowhere"}, {"user": "nobody-here"}], ids=str)
async def test_run_command__a_failed_start_states_the_reason(run, wrong):
    refused = await run("true", **wrong)
    assert (refused.status_code, refused.json()["code"]) == (422, "command-not-started")


async def test_list_commands__newest_first_filtered_by_state_and_paginated(caller, sandbox, run):
    ids = [(await run("true")).json()["id"] for _ in range(3)]
    listed = (await caller.get(f"{sandbox}/commands", params={"limit": 2})).json()
    assert [one["id"] for one in listed["items"]] == ids[:0:-1]
    assert "stdout" not in listed["items"][0]
    more = {"limit": 1, "cursor": listed["next_cursor"]}
    [last] = (await caller.get(f"{sandbox}/commands", params=more)).json()["items"]
    assert last["id"] == ids[0]
    lost = (await caller.get(f"{sandbox}/commands", params={"state": ["lost", "failed"]})).json()
    assert {one["state"] for one in lost["items"]} <= {"lost", "failed"}


async def test_get_command__an_unknown_command_is_not_found(caller, sandbox):
    for path in ("", "/output"):
        missing = await caller.get(f"{sandbox}/commands/{ABSENT}{path}")
        assert (missing.status_code, missing.json()["code"]) == (404, "command-not-found")


async def is_in(caller, path, state):
    return (await caller.get(path)).json()["state"] == state


async def test_server_stop__ends_waits_for_commands_and_returns_where_to_poll(server, sandbox):
    async with server.client() as caller:
        body = {"cmd": "read line; echo read $line", "stdin": True}
        answering = asyncio.create_task(
            caller.post(f"{sandbox}/commands", params={"wait": 300}, json=body)
        )

        async def is_running():
            listed = await caller.get(f"{sandbox}/commands", params={"state": "running"})
            return body["cmd"] in [one["cmd"] for one in listed.json()["items"]]

        await until(is_running)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        async with asyncio.timeout(15):
            answer = await answering
            assert await stopping == 0
    server.start()
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    path = answer.headers["Location"]
    async with server.client() as caller:
        await caller.post(f"{path}/input", json={"text": "on\n"})
        async with following(caller, f"{path}/output") as stream:
            assert (await stream.until("stdout")).data["text"] == "read on\n"
            assert (await stream.until("exit")).data["exit_code"] == 0


async def test_server_crash__stored_output_survives_and_the_command_continues(server, begin):
    path = await begin("echo before; read line; echo after $line", stdin=True)
    async with server.client() as caller, following(caller, f"{path}/output") as stream:
        last = await stream.until("stdout")
        server.kill()
    server.start()
    async with server.client() as caller:
        async with following(caller, f"{path}/output", after=last.id) as stream:
            gap = await stream.until("gap")
            sent = await caller.post(f"{path}/input", json={"text": "all\n"})
            assert sent.status_code == 204, sent.text
            told = [one.data for one in await stream.rest()]
        assert gap.data["reason"]
        written = [(one["offset"], one["text"]) for one in told if one["type"] == "stdout"]
        assert written == [(7, "after all\n")]
        assert (told[-1]["state"], told[-1]["exit_code"]) == ("exited", 0)
        outcome = (await caller.get(path)).json()
    assert outcome["stdout"] == "before\nafter all\n"
    assert outcome["stdout_cut"] == {"offset": 7, "size": None}


def test_docs__the_examples_of_commands_work(server, sandbox):
    section = BY_HTTP.read_text().partition("\n## Commands\n")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    variables = {"KEY": server.admin_key, "SERVER": server.url, "ID": sandbox.rpartition("/")[2]}
    shown = subprocess.run(
        ["sh", "-euxc", script.replace("curl ", "curl -sS --fail-with-body ")],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert '"stderr":"done\\n"' in shown.stdout
    assert '"text":"3\\n"' in shown.stdout


async def test_command_output__a_flood_is_streamed_once_or_reported_as_a_gap(caller, begin):
    written = b"".join(b"%d\n" % number for number in range(1, 1_500_001))
    path = await begin("seq 1 1500000; seq 1500000 >&2")
    last, covered, over = 0, 0, False
    while not over:
        async with following(caller, f"{path}/output", after=last) as stream:
            async for one in stream:
                assert one.id > last
                last, told = one.id, one.data
                over = told["type"] == "exit"
                if told["type"] == "stdout":
                    content = told["text"].encode()
                    end = told["offset"] + len(content)
                    assert told["offset"] == covered
                    assert written[covered:end] == content
                    covered = end
                elif told["type"] == "gap" and told["stream"] == "stdout":
                    assert told["offset"] <= covered
                    covered = max(covered, told["offset"] + told["size"])
                if len(stream.told) == 20:
                    break
    assert covered == len(written)
    outcome = (await caller.get(path)).json()
    assert outcome["stdout_size"] == outcome["stderr_size"] == len(written)
    assert outcome["stdout"].startswith("1\n2\n")
    assert outcome["stdout"].endswith("\n1500000\n")
    told = len(outcome["stdout"].encode()) - len(
        f"\n[{outcome['stdout_cut']['size']} bytes are missing here]\n"
    )
    assert told + outcome["stdout_cut"]["size"] == len(written)
