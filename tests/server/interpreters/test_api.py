"""Code over HTTP, on a real server and engine; a small interpreter runs in the sandbox."""

import base64

import pytest
from sqlalchemy import update

from sandbox_server.db.models import Sandbox
from tests.server.interpreters.interpreter_sandbox import sandbox_with_interpreter
from tests.server.support.event_reader import following

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

PNG = base64.b64encode(b"\x89PNG not really").decode()


def kinds(told):
    return [one.data["type"] for one in told]


async def test_code__answers_with_output_result_and_count(api, path, run):
    done = await run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 20\nx + 1")
    assert (done["state"], done["error"]) == ("succeeded", None)
    assert (done["stdout"], done["stderr"]) == ("out\n", "err\n")
    [result] = done["results"]
    assert result["data"] == {"text": "21"}
    assert result["is_main_result"]
    assert done["language"] == "python"
    again = await run("x")
    assert again["results"][0]["data"] == {"text": "20"}
    assert again["execution_count"] == done["execution_count"] + 1
    assert (await api.get(f"{path}/code/{done['id']}")).json() == done


async def test_code__an_exception_is_the_error_of_the_execution(run):
    done = await run("print('before')\n1 / 0")
    assert done["state"] == "error"
    assert done["stdout"] == "before\n"
    assert done["error"]["name"] == "ZeroDivisionError"
    assert "Traceback" in done["error"]["traceback"]


async def test_code__environment_variables_are_those_of_one_execution(run):
    code = "import os\nos.environ.get('ONCE')"
    assert (await run(code, env_vars={"ONCE": "here"}))["results"][0]["data"]["text"] == "'here'"
    assert (await run(code))["results"] == []


async def test_code__streams_events_and_resumes_after_any_of_them(api, path):
    code = f"print('one')\ndisplay(png='{PNG}')\nprint('two')\n1 / 0"
    options = {"method": "POST", "json": {"code": code}}
    async with following(api, f"{path}/code", **options) as stream:
        told = await stream.rest()
        events = stream.headers["Content-Location"]
    assert kinds(told) == ["started", "stdout", "result", "stdout", "error", "end"]
    assert told[0].data["execution_id"] in events
    assert told[2].data["data"] == {"png": PNG}
    assert (told[-2].data["name"], told[-1].data["state"]) == ("ZeroDivisionError", "error")
    async with following(api, events, after=told[2].id) as again:
        assert await again.rest() == told[3:]
    over = await api.get(
        events, headers={"Accept": "text/event-stream", "Last-Event-ID": str(told[-1].id)}
    )
    assert over.status_code == 204


async def test_code__a_figure_is_read_as_a_file(api, path, run):
    done = await run(f"display(png={PNG!r}, html='<script>1</script>')")
    [result] = done["results"]
    assert result["sizes"] == {"html": 18, "png": 15}
    results = f"{path}/code/{done['id']}/results"
    figure = await api.get(f"{results}/0/png")
    assert (figure.content, figure.headers["Content-Type"]) == (b"\x89PNG not really", "image/png")
    page = await api.get(f"{results}/0/html")
    assert page.headers["Content-Disposition"].startswith("attachment")
    assert page.headers["Content-Security-Policy"].startswith("sandbox")
    missing = await api.get(f"{results}/0/pdf")
    assert (missing.status_code, missing.json()["code"]) == (404, "code-result-not-found")


async def test_code__lists_executions_newest_first(api, path, run):
    older, newer = await run("1"), await run("2" * 2000)
    [first, second] = (await api.get(f"{path}/code", params={"limit": 2})).json()["items"]
    assert (first["id"], second["id"]) == (newer["id"], older["id"])
    assert len(first["code"]) == 1001
    assert (await api.get(f"{path}/commands")).json()["items"] == []


async def test_code__a_repeated_request_runs_nothing_again(api, path, run):
    body = {"code": "print(1)"}
    key = {"Idempotency-Key": "once"}
    first = await api.post(f"{path}/code", json=body, headers=key)
    second = await api.post(f"{path}/code", json=body, headers=key)
    assert first.json() == second.json()


async def test_code__the_merged_log_contains_output_and_results(api, path, run):
    done = await run("print('logged')\n5")
    answer = await api.get(f"{path}/logs", params={"source": "code"})
    own = [one for one in answer.json()["items"] if one.get("command_id") == done["id"]]
    assert [one["type"] for one in own] == ["started", "stdout", "result", "exit"]


async def test_code__errors_say_what_is_wrong(api, path):
    cases = [
        ({"code": "1", "context_id": "absent"}, 404, "code-context-not-found"),
        ({"code": "1", "language": "cobol"}, 422, "code-refused"),
        ({"code": "1", "language": "python", "context_id": "x"}, 422, "validation-failed"),
        ({"code": "x" * (2**20 + 1)}, 422, "validation-failed"),
        ({"code": "1", "timeout_s": 0}, 422, "validation-failed"),
    ]
    for body, status, code in cases:
        answer = await api.post(f"{path}/code", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_code__a_sandbox_without_an_interpreter_names_the_template(api, outside):
    made = await api.post("/v1/sandboxes", json={})
    path = f"/v1/sandboxes/{made.json()['id']}"
    for answer in (
        await api.post(f"{path}/code", json={"code": "1"}),
        await api.get(f"{path}/contexts"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "interpreter-missing")
        assert "code-interpreter-v1" in answer.json()["remediation"]
    async with outside.components.sessions.begin() as session:
        await session.execute(
            update(Sandbox).values(capabilities=["code"]).where(Sandbox.id == made.json()["id"])
        )
    ended = await api.post(f"{path}/code", json={"code": "1"})
    assert (ended.status_code, ended.json()["code"]) == (502, "interpreter-unreachable")
    failed = (await api.get(f"{path}/code")).json()["items"]
    assert [one["state"] for one in failed] == ["failed", "failed"]
    assert failed[1]["state_reason"].endswith("from the template `code-interpreter-v1`.")
    await api.delete(path)


async def test_contexts__have_variables_of_their_own_until_restart_or_delete(api, path, run):
    made = await api.post(f"{path}/contexts", json={"cwd": "/home"})
    assert made.status_code == 201, made.text
    context_id = made.json()["id"]
    assert (made.json()["language"], made.json()["cwd"]) == ("python", "/home")
    await run("mine = 1", context_id=context_id)
    assert (await run("mine"))["error"]["name"] == "NameError"
    assert (await run("mine", context_id=context_id))["results"][0]["data"]["text"] == "1"
    assert (await api.post(f"{path}/contexts/{context_id}/restart")).status_code == 204
    assert (await run("mine", context_id=context_id))["error"]["name"] == "NameError"
    listed = (await api.get(f"{path}/contexts")).json()["items"]
    assert context_id in [one["id"] for one in listed]
    assert (await api.delete(f"{path}/contexts/{context_id}")).status_code == 204
    again = await api.delete(f"{path}/contexts/{context_id}")
    assert (again.status_code, again.json()["code"]) == (404, "code-context-not-found")


async def test_contexts__interrupt_ends_the_code_and_keeps_variables(api, path, run):
    context_id = (await api.post(f"{path}/contexts", json={})).json()["id"]
    body = {"code": "kept = 7\nprint('on')\nwhile True: pass", "context_id": context_id}
    async with following(api, f"{path}/code", method="POST", json=body) as stream:
        await stream.until("stdout")
        listed = (await api.get(f"{path}/contexts")).json()["items"]
        assert [one["busy"] for one in listed if one["id"] == context_id] == [True]
        assert (await api.post(f"{path}/contexts/{context_id}/interrupt")).status_code == 204
        told = await stream.rest()
    assert (told[-2].data["name"], told[-1].data["state"]) == ("KeyboardInterrupt", "error")
    assert (await run("kept", context_id=context_id))["results"][0]["data"]["text"] == "7"


async def test_code__belongs_to_its_tenant(api, outside, path, run):
    done = await run("display(text='secret')")
    put = await api.put("/v1/tenants/stranger", json={})
    assert put.is_success, put.text
    _, secret = await outside.new_key(tenant="stranger")
    async with outside.api(**{"X-API-Key": secret}) as stranger:
        answers = [
            await stranger.post(f"{path}/code", json={"code": "1"}),
            await stranger.get(f"{path}/code"),
            await stranger.get(f"{path}/code/{done['id']}"),
            await stranger.get(f"{path}/code/{done['id']}/events"),
            await stranger.get(f"{path}/code/{done['id']}/results/0/text"),
            await stranger.post(f"{path}/code/{done['id']}/interrupt"),
            await stranger.get(f"{path}/contexts"),
            await stranger.post(f"{path}/contexts", json={}),
        ]
    assert {answer.status_code for answer in answers} == {404}
    assert {answer.json()["code"] for answer in answers} == {"sandbox-not-found"}


async def test_code__that_runs_keeps_the_sandbox_awake(api, outside):
    async with sandbox_with_interpreter(outside, idle_timeout_s=2) as sandbox_id:
        path = f"/v1/sandboxes/{sandbox_id}"
        body = {"code": "import time\ntime.sleep(5)\n'awake'"}
        done = (await api.post(f"{path}/code", json=body)).json()
        assert (done["state"], done["state_reason"]) == ("succeeded", None)
        assert (await api.get(path)).json()["state"] == "running"
