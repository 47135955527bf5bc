"""Executions whose server is killed: they are recorded, their streams resume, and nothing runs twice."""

import asyncio

import httpx
import pytest

from sandbox_server.commands.recording import CODE_INTERRUPTED
from tests.server.interpreters.interpreter_sandbox import GUEST
from tests.server.support.event_reader import following
from tests.server.support.server_process import server_process, variables_of

pytestmark = pytest.mark.needs_engine

LISTENS = "until (echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.05; done"
ENDLESS = "kept = globals().get('kept', 0) + 1\nprint('on')\nwhile True: pass"
KEY = {"Idempotency-Key": "once"}
RAN = "/home/user/ran"
MANY = 150
SOME = 20


@pytest.fixture
def server(engine, database_url):
    variables = variables_of(engine, database_url) | {"SANDBOX_SERVER_LEASE_S": "2"}
    with server_process(variables=variables) as server:
        server.start()
        yield server


@pytest.fixture
async def path(server):
    """Make a sandbox with an interpreter."""
    async with server.client() as caller:
        made = await caller.post("/v1/sandboxes", json={"timeout_s": 600})
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        program = {"path": "/home/user/interpreter.py"}
        await caller.put(f"{path}/files/content", params=program, content=GUEST.read_bytes())
        begin = {"cmd": "exec python3 /home/user/interpreter.py", "background": True}
        assert (await caller.post(f"{path}/commands", json=begin)).is_success
        ready = await caller.post(f"{path}/commands", json={"cmd": LISTENS})
        assert ready.json()["exit_code"] == 0, ready.text
    yield path
    async with server.client() as caller:
        await caller.delete(path)


async def test_kill__the_stream_resumes_to_an_end_with_its_reason_and_nothing_runs_again(
    server, path
):
    request = {"method": "POST", "json": {"code": ENDLESS}, "headers": KEY}
    async with (
        server.client() as caller,
        following(caller, f"{path}/code", **request) as stream,
    ):
        seen = await stream.until("stdout")
        events = stream.headers["Content-Location"]
        server.kill()
    server.start()
    async with server.client() as caller:
        async with following(caller, events, after=seen.id) as stream:
            [end] = await stream.rest()
        again = await caller.post(f"{path}/code", json={"code": ENDLESS}, headers=KEY)
        after = await caller.post(f"{path}/code", json={"code": "kept"})
    assert (end.data["type"], end.data["state"]) == ("end", "lost")
    assert end.data["reason"] == CODE_INTERRUPTED
    assert again.json()["id"] in events
    assert (again.json()["state"], again.json()["stdout"]) == ("lost", "on\n")
    assert after.json()["results"][0]["data"]["text"] == "1"


async def test_kill__whatever_ran_is_recorded_and_whatever_was_answered_is_kept(server, path):
    answered = []

    async def run(caller, number):
        code = f"print(open({RAN!r}, 'a').write('{number}\\n'))"
        answer = await caller.post(f"{path}/code", json={"code": code})
        answered.append(answer.json())
        if len(answered) == SOME:
            server.kill()

    async with server.client() as caller:
        runs = [run(caller, number) for number in range(MANY)]
        ends = await asyncio.gather(*runs, return_exceptions=True)
    assert any(isinstance(end, httpx.TransportError) for end in ends)
    server.start()
    async with server.client() as caller:
        page = (await caller.get(f"{path}/code", params={"limit": 100})).json()
        listed = [one["code"] for one in page["items"]]
        if page["next_cursor"] is not None:
            rest = {"limit": 100, "cursor": page["next_cursor"]}
            page = (await caller.get(f"{path}/code", params=rest)).json()
            listed += [one["code"] for one in page["items"]]
        kept = [(await caller.get(f"{path}/code/{one['id']}")).json() for one in answered]
        ran = (await caller.post(f"{path}/commands", json={"cmd": f"cat {RAN}"})).json()["stdout"]
    assert kept == answered
    recorded = {code.split("'")[-2].removesuffix("\\n") for code in listed}
    assert len(ran.split()) >= len(answered) >= SOME
    assert set(ran.split()) <= recorded
