"""Agent runs on a real server and engine; a program stands in for the agents."""

import json
import secrets
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.engine.engine_process import running_engine
from tests.engine.polling import until
from tests.server.support.databases import new_database
from tests.server.support.event_reader import following
from tests.server.support.server_process import server_process, variables_of

pytestmark = pytest.mark.needs_engine

PROGRAM = Path(__file__).with_name("agent_stand_in.py")
FINISH = "say('started', agent=REQUEST['agent']); say('message', message={'n': 1}); result()"
WAIT_FOR_TERM = """
import signal
signal.signal(signal.SIGTERM, lambda *_: result("interrupted", "stopped"))
say("message", message="waiting")
signal.pause()
"""


@pytest.fixture(scope="module")
def engine():
    """Run an engine for this module, because a test crashes it."""
    with running_engine() as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(bundled_url, engine):
    async with new_database(bundled_url) as url:
        with server_process("--lease-s", "2", variables=variables_of(engine, url)) as server:
            server.start()
            yield server


def new_sandbox(server, **body):
    """Create a sandbox with the program; returns its API path."""
    headers = {"X-API-Key": server.admin_key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as caller:
        made = caller.post("/v1/sandboxes", json=body)
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        content = {"path": "/tmp/sandbox-tools"}
        caller.put(f"{path}/files/content", params=content, content=PROGRAM.read_bytes())
        cmd = "sudo install -m 755 /tmp/sandbox-tools /usr/local/bin/sandbox-tools"
        assert caller.post(f"{path}/commands", json={"cmd": cmd}).json()["exit_code"] == 0
        return path


@pytest.fixture(scope="module")
def sandbox(server):
    return new_sandbox(server)


@pytest.fixture
async def caller(server):
    async with server.client() as caller:
        yield caller


@pytest.fixture
def begin(caller, sandbox):
    async def begin(prompt, *, path=sandbox, params=None, headers=None, **body):
        return await caller.post(
            f"{path}/agent/runs",
            params=params,
            headers=headers,
            json={"agent": "claude", "prompt": prompt, **body},
        )

    return begin


async def test_agent_runs__waiting_returns_the_result(begin):
    answer = await begin(FINISH)
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert (run["agent"], run["state"]) == ("claude", "succeeded")
    assert run["result"] == {
        "state": "succeeded",
        "exit_code": 0,
        "output": "done",
        "cost": 0.25,
        "session_id": "one",
        "changed_files": ["a.txt"],
    }


async def test_agent_runs__a_run_stopped_at_its_timeout_is_timed_out(begin):
    run = (await begin("result('timed_out', 'It was stopped.')")).json()
    assert (run["state"], run["result"]["state"]) == ("timed_out", "timed_out")
    assert run["result"]["exit_code"] == 124


async def test_agent_runs__the_agent_gets_all_parameters(begin):
    asked = {
        "model": "m",
        "tools": ["Bash"],
        "permission_mode": "plan",
        "cwd": "/tmp",
        "session_id": "s",
        "max_turns": 3,
        "timeout_s": 60,
    }
    prompt = "result(output=json.dumps([REQUEST, os.environ['KEY']]))"
    run = (await begin(prompt, envs={"KEY": "of this run"}, **asked)).json()
    assert json.loads(run["result"]["output"]) == [
        {"agent": "claude", "prompt": prompt, **asked},
        "of this run",
    ]


async def test_agent_runs__a_prompt_of_one_mebibyte_arrives_complete(begin):
    text = "ü" * 500_000
    run = (await begin(f"result(output=str(len({text!r})))")).json()
    assert run["result"]["output"] == "500000"
    assert len(run["prompt"]) == 1000


async def test_agent_runs__events_are_streamed_while_the_agent_works(caller, sandbox):
    body = {"agent": "codex", "prompt": FINISH}
    async with following(caller, f"{sandbox}/agent/runs", method="POST", json=body) as stream:
        run, again = stream.headers["Location"], stream.headers["Content-Location"]
        told = await stream.rest()
    assert [one.data["type"] for one in told] == ["started", "message", "result"]
    assert told[0].data["agent"] == "codex"
    assert run == f"{sandbox}/agent/runs/{told[0].data['run_id']}"
    assert (await caller.get(run)).json()["state"] == "succeeded"
    async with following(caller, again, after=told[0].id) as stream:
        assert await stream.rest() == told[1:]
    assert [one.id for one in told] == sorted({one.id for one in told})


async def test_agent_runs__a_stream_resumes_after_any_event(caller, sandbox, begin):
    lines = "[say('message', message='x' * n) for n in range(40)]; result()"
    run = (await begin(lines)).json()
    path = f"{sandbox}/agent/runs/{run['id']}/events"
    async with following(caller, path) as stream:
        all_told = await stream.rest()
    assert len(all_told) == 41
    for index in (0, 17, 39):
        async with following(caller, path, after=all_told[index].id) as stream:
            assert await stream.rest() == all_told[index + 1 :]
    over = await caller.get(
        path, headers={"Accept": "text/event-stream", "Last-Event-ID": str(all_told[-1].id)}
    )
    assert over.status_code == 204
    async with following(caller, path, params={"tail": 3}) as stream:
        assert [one.data["type"] for one in await stream.rest()][-3:] == [
            "message",
            "message",
            "result",
        ]


async def test_agent_runs__output_in_parts_is_streamed_in_lines(caller, sandbox, begin):
    prompt = """
import time
whole = json.dumps({"type": "message", "message": "a" * 3000})
for start in range(0, len(whole), 500):
    sys.stdout.write(whole[start:start + 500]); sys.stdout.flush(); time.sleep(0.03)
print("\\nnot of an agent")
result()
"""
    run = (await begin(prompt)).json()
    async with following(caller, f"{sandbox}/agent/runs/{run['id']}/events") as stream:
        told = [one.data for one in await stream.rest()]
    assert [one["type"] for one in told] == ["message", "text", "result"]
    assert told[0]["message"] == "a" * 3000
    assert told[1]["text"] == "not of an agent"


async def test_agent_runs__an_interrupted_run_ends_with_a_result(caller, sandbox, begin):
    run = (await begin(WAIT_FOR_TERM, params={"wait": 0})).json()
    path = f"{sandbox}/agent/runs/{run['id']}"
    async with following(caller, f"{path}/events") as stream:
        await stream.until("message")
        assert (await caller.post(f"{path}/interrupt")).status_code == 204
        told = await stream.until("result")
    assert (told.data["state"], told.data["output"]) == ("interrupted", "stopped")
    assert (await caller.get(path)).json()["state"] == "interrupted"
    assert (await caller.post(f"{path}/interrupt")).status_code == 409


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("sys.exit(3)", "without a result, with exit code 3"),
        ("raise SystemError('no model')", "no model"),
        ("os.execvp('sh', ['sh', '-c', 'exit 127'])", "agent-full"),
        ("os.kill(os.getpid(), 9)", ""),
    ],
    ids=["code", "words", "absent", "killed"],
)
async def test_agent_runs__a_missing_result_is_explained(begin, prompt, says):
    run = (await begin(prompt)).json()
    assert run["state"] in {"failed", "interrupted"}
    assert says in run["result"]["output"]
    assert run["result"]["output"]


async def test_agent_runs__invalid_fields_of_a_result_are_ignored(begin):
    run = (await begin('print(\'{"type": "result", "cost": "dear", "output": 7}\')')).json()
    assert (run["result"]["cost"], run["result"]["output"]) == (None, "")


async def test_agent_runs__are_listed_separately_and_appear_in_the_log(caller, sandbox, begin):
    run = (await begin(FINISH)).json()
    listed = (await caller.get(f"{sandbox}/agent/runs")).json()["items"]
    assert run["id"] in [one["id"] for one in listed]
    commands = (await caller.get(f"{sandbox}/commands")).json()["items"]
    assert run["id"] not in [one["id"] for one in commands]
    assert (await caller.get(f"{sandbox}/commands/{run['id']}")).status_code == 404
    logged = (await caller.get(f"{sandbox}/logs", params={"source": "agent", "limit": 200})).json()[
        "items"
    ]
    assert run["id"] in {one.get("command_id") for one in logged}


async def test_agent_runs__a_repeated_request_returns_the_same_run(caller, sandbox, begin):
    answers = [await begin(FINISH, headers={"Idempotency-Key": "once"}) for _ in range(2)]
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent", "nobody"),
        ("prompt", " "),
        ("prompt", "x" * (2**20 + 1)),
        ("model", "--help"),
        ("session_id", "../x"),
    ],
)
async def test_agent_runs__invalid_parameters_are_rejected(begin, field, value):
    answer = await begin(**{"prompt": FINISH, field: value})
    assert answer.status_code == 422
    assert field in answer.text


async def test_agent_runs__a_run_survives_a_crash_of_the_server(server, sandbox):
    prompt = """
import time
for n in range(600):
    say("message", message=n); time.sleep(0.02)
    if os.path.exists("/tmp/enough"): break
result()
"""
    async with server.client() as caller:
        body = {"agent": "claude", "prompt": prompt}
        begun = await caller.post(f"{sandbox}/agent/runs", params={"wait": 0}, json=body)
        path = f"{sandbox}/agent/runs/{begun.json()['id']}"
        async with following(caller, f"{path}/events") as stream:
            first = await stream.until("message")
    server.kill()
    server.start()
    async with (
        server.client() as caller,
        following(caller, f"{path}/events", after=first.id) as stream,
    ):
        await stream.until("message")
        cmd = {"cmd": "touch /tmp/enough"}
        assert (await caller.post(f"{sandbox}/commands", json=cmd)).status_code == 201
        last = await stream.until("result")
        told = stream.told
    assert last.data["state"] == "succeeded"
    said = [one.data["message"] for one in told if one.data["type"] == "message"]
    assert said == sorted(set(said))
    assert "gap" in {one.data["type"] for one in told} or said[0] == 1
    assert all(one.data["type"] != "text" for one in told)


@pytest.mark.parametrize(
    "is_seen", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["found-ended", "gone"]
)
async def test_agent_runs__a_run_that_ends_while_no_server_runs_has_its_result(
    server, begin, sandbox, engine, is_seen
):
    mark = secrets.token_hex(8)
    prompt = f"import time; time.sleep(2); result(output='{mark} ' + 'ü' * 40_000)"
    run = (await begin(prompt, params={"wait": 0})).json()

    async def has_begun():
        return is_running(mark)

    async def has_ended():
        return not is_running(mark)

    await until(has_begun)
    server.kill()
    await until(has_ended)
    if not is_seen:  # a restarted engine does not know ended commands
        engine.kill()
        engine.start()
    server.start()
    async with server.client() as caller:
        path = f"{sandbox}/agent/runs/{run['id']}"
        async with following(caller, f"{path}/events") as stream:
            told = await stream.rest()
        assert [one.data["type"] for one in told][-1] == "result"
        assert told[-1].data["output"] == f"{mark} " + "ü" * 40_000
        seen = (await caller.get(path)).json()
        assert (seen["state"], seen["result"]["session_id"]) == ("succeeded", "one")
        listed = (await caller.get(f"{sandbox}/agent/runs")).json()["items"]
        assert {one["id"]: one["state"] for one in listed}[run["id"]] == "succeeded"


async def test_agent_runs__a_run_ends_normally_if_its_result_file_cannot_be_written(server, begin):
    path = new_sandbox(server)
    async with server.client() as caller:
        full = {"cmd": "sudo mount -t tmpfs -o size=4k,mode=555 none /tmp || sudo chmod 555 /tmp"}
        assert (await caller.post(f"{path}/commands", json=full)).json()["exit_code"] == 0
    run = (
        await begin("[say('message', message='x' * 9999) for _ in range(99)]; result()", path=path)
    ).json()
    assert (run["state"], run["result"]["output"]) == ("succeeded", "done")


def is_running(mark):
    """Return whether a process of this machine has this text in its environment."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environment.read_bytes():
                return True
    return False


async def test_pause_after__the_sandbox_is_paused_after_its_run(server, caller, begin):
    path = new_sandbox(server)
    run = (await begin(FINISH, path=path, pause_after=True)).json()
    assert run["afterwards"] == "to-be-paused"

    async def is_paused():
        return (await caller.get(path)).json()["state"] == "paused"

    await until(is_paused)
    timeline = (await caller.get(f"{path}/timeline")).json()
    assert "after an agent run (claude)" in json.dumps(timeline)
    assert (await caller.get(f"{path}/agent/runs/{run['id']}")).json()["afterwards"] == "paused"
    assert (await caller.post(f"{path}/resume")).json()["state"] == "running"


async def test_pause_after__a_sandbox_in_use_is_not_paused(server, caller, begin):
    path = new_sandbox(server)
    other = {"cmd": "sleep 600", "background": True}
    assert (await caller.post(f"{path}/commands", json=other)).status_code == 201
    run = (await begin(FINISH, path=path, pause_after=True)).json()

    async def is_decided():
        told = (await caller.get(f"{path}/agent/runs/{run['id']}")).json()
        return told["afterwards"] == "in-use"

    await until(is_decided)
    assert (await caller.get(path)).json()["state"] == "running"


@pytest.mark.slow  # restarts a server
async def test_pause_after__a_pause_is_made_up_for_after_a_crash(server, begin):
    path = new_sandbox(server)
    prompt = f"import time; time.sleep(2); {FINISH}"
    run = (await begin(prompt, path=path, pause_after=True, params={"wait": 0})).json()
    server.kill()
    server.start()
    async with server.client() as caller:

        async def is_paused():
            return (await caller.get(path)).json()["state"] == "paused"

        await until(is_paused)
        assert (await caller.get(f"{path}/agent/runs/{run['id']}")).json()["afterwards"] == "paused"
