import asyncio
import base64

import pytest

from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def call(api):
    """Call a verb."""

    async def call(verb, **body):
        return await api.post(f"/sandboxes/{verb}", json=body)

    return call


@pytest.fixture
async def sandbox_id(call):
    return (await call("create", user_id="u", template_id="base")).json()["sandbox_id"]


async def test_create__answers_when_the_sandbox_runs(call, api):
    created = await call("create", user_id="u", sandbox_template_id="base", timeout_seconds=100)
    assert created.status_code == 200
    assert created.json()["status"] == "running"
    assert created.json()["urls"]["mcp"].endswith("/mcp/")
    told = (await api.get(f"/v1/sandboxes/{created.json()['sandbox_id']}")).json()
    assert (told["user_id"], told["template"], told["timeout_s"]) == ("u", "base", 100)


async def test_status__returns_the_state(api, sandbox_id):
    told = (await api.get("/sandboxes/status", params={"sandbox_id": sandbox_id})).json()
    assert (told["sandbox_id"], told["status"]) == (sandbox_id, "running")


async def test_connect__resumes_a_paused_sandbox(call, api, sandbox_id):
    await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
    connected = await call("connect", sandbox_id=sandbox_id)
    assert (connected.status_code, connected.json()["status"]) == (200, "running")


@pytest.mark.parametrize("spelling", ["timeout", "timeout_seconds"])
async def test_timeout__deletes_the_sandbox_at_its_end(call, api, sandbox_id, spelling):
    assert (await call("timeout", sandbox_id=sandbox_id, **{spelling: 90})).status_code == 200
    told = (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()
    assert (told["timeout_s"], told["on_timeout"]) == (90, "delete")


async def test_delete__can_be_repeated(call, sandbox_id):
    for _ in range(2):
        deleted = await call("delete", sandbox_id=sandbox_id)
        assert (deleted.status_code, deleted.json()["status"]) == (200, "stopped")


async def test_expose_port__returns_a_link(call, sandbox_id):
    exposed = (await call("expose-port", sandbox_id=sandbox_id, port=3000)).json()
    assert exposed["port"] == 3000
    assert exposed["url"].startswith(f"http://3000-{sandbox_id}.")


async def test_run_command__returns_output_and_exit_code(call, sandbox_id):
    ran = await call("run-command", sandbox_id=sandbox_id, command="echo out; echo err >&2; exit 3")
    assert ran.status_code == 200
    assert sorted(ran.json()["output"].split()) == ["err", "out"]
    assert ran.json()["exit_code"] == 3
    assert ran.json()["truncated"] is False


async def test_run_command__in_the_background_continues(call, sandbox_id):
    begun = await call(
        "run-command",
        sandbox_id=sandbox_id,
        command="sleep 0.2; echo done > /tmp/done",
        background=True,
    )
    assert begun.json() == {"output": "", "exit_code": None, "truncated": False}

    async def done():
        read = await call("read-file", sandbox_id=sandbox_id, path="/tmp/done")
        return read.status_code == 200 and read.json()["content"] == "done\n"

    assert await until(done)


async def test_run_command__is_listed_with_its_output(call, api, sandbox_id):
    await call("run-command", sandbox_id=sandbox_id, command="echo out; echo err >&2; exit 3")
    await call("run-command", sandbox_id=sandbox_id, command="sleep 1003", background=True)
    listed = (await api.get(f"/v1/sandboxes/{sandbox_id}/commands")).json()["items"]
    assert [command["background"] for command in listed] == [True, False]
    ended = (await api.get(f"/v1/sandboxes/{sandbox_id}/commands/{listed[1]['id']}")).json()
    assert (ended["state"], ended["exit_code"]) == ("exited", 3)
    assert (ended["stdout"], ended["stderr"]) == ("out\n", "err\n")


async def test_run_command__output_beyond_what_is_recorded_is_marked_as_truncated(call, sandbox_id):
    ran = await call("run-command", sandbox_id=sandbox_id, command="seq 1000000; echo end")
    assert ran.json()["truncated"] is True
    assert ran.json()["output"].endswith("1000000\nend\n")


async def test_run_command__names_the_command_when_the_server_stops_waiting(
    call, api, served, sandbox_id
):
    command = "touch /tmp/started; sleep 1004"
    running = asyncio.create_task(call("run-command", sandbox_id=sandbox_id, command=command))

    async def has_started():
        read = await call("read-file", sandbox_id=sandbox_id, path="/tmp/started")
        return read.status_code == 200

    await until(has_started)
    served.commands.end_waits()
    answer = await running
    assert (answer.status_code, answer.json()["code"]) == (503, "answer-lost")
    [listed] = (await api.get(f"/v1/sandboxes/{sandbox_id}/commands")).json()["items"]
    assert f"The command is running. Its id is {listed['id']}." in answer.json()["detail"]


async def test_run_command__killed_by_a_signal_has_no_exit_code_of_its_own(call, sandbox_id):
    ran = await call("run-command", sandbox_id=sandbox_id, command="kill -KILL $$")
    assert ran.json()["exit_code"] == -1


async def test_run_command__a_timeout_is_a_problem(call, sandbox_id):
    late = await call("run-command", sandbox_id=sandbox_id, command="sleep 1002", timeout=1)
    assert late.status_code == 504
    assert late.json()["code"] == "command-timed-out"


@pytest.mark.parametrize("spelling", ["path", "file_path"])
async def test_read_file__returns_what_was_written(call, sandbox_id, spelling):
    where = {"sandbox_id": sandbox_id, spelling: "/home/user/a/b"}
    written = await call("write-file", **where, content="grüße\0\n")
    assert written.json() == {"path": "/home/user/a/b", "size": 9}
    read = (await call("read-file", **where)).json()
    assert (read["content"], read["encoding"]) == ("grüße\0\n", "utf-8")


async def test_write_file__readers_keep_the_version_that_they_opened(call, sandbox_id):
    where = {"sandbox_id": sandbox_id, "path": "/home/user/settings"}
    await call("write-file", **where, content="old")
    reading = (
        "exec 3<settings; touch opened; until grep -q new settings; do sleep 0.05; done; cat <&3"
    )
    reader = asyncio.create_task(call("run-command", sandbox_id=sandbox_id, command=reading))

    async def is_opened():
        read = await call("read-file", sandbox_id=sandbox_id, path="/home/user/opened")
        return read.status_code == 200

    await until(is_opened)
    await call("write-file", **where, content="new")
    assert (await reader).json()["output"] == "old"


async def test_read_file__binary_content_is_base64(call, sandbox_id):
    content = base64.b64encode(b"\xff\x00").decode()
    where = {"sandbox_id": sandbox_id, "path": "/tmp/bytes"}
    await call("write-file", **where, content=content, encoding="base64")
    read = (await call("read-file", **where)).json()
    assert (read["content"], read["encoding"]) == (content, "base64")
    for wrong in ("no base64!", "YQ", "ä"):
        refused = await call("write-file", **where, content=wrong, encoding="base64")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")


async def test_read_file__a_missing_file_and_a_directory_are_problems(call, sandbox_id):
    missing = await call("read-file", sandbox_id=sandbox_id, path="/nowhere")
    assert (missing.status_code, missing.json()["code"]) == (404, "path-not-found")
    directory = await call("read-file", sandbox_id=sandbox_id, path="/etc")
    assert (directory.status_code, directory.json()["code"]) == (409, "path-refused")


async def test_verbs__resume_a_paused_sandbox(call, api, sandbox_id):
    await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
    ran = await call("run-command", sandbox_id=sandbox_id, command="echo awake")
    assert ran.json()["output"] == "awake\n"


async def test_verbs__an_ended_sandbox_is_a_conflict(call, sandbox_id):
    await call("delete", sandbox_id=sandbox_id)
    refused = await call("run-command", sandbox_id=sandbox_id, command="true")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid-transition")


VERBS: dict[str, dict[str, object]] = {
    "connect": {},
    "timeout": {"timeout": 60},
    "delete": {},
    "expose-port": {"port": 80},
    "run-command": {"command": "true"},
    "write-file": {"path": "/x", "content": ""},
    "read-file": {"path": "/x"},
}


@pytest.mark.parametrize("verb", VERBS)
async def test_verbs__an_unknown_sandbox_is_not_found(call, verb):
    missing = await call(verb, sandbox_id="0" * 20, **VERBS[verb])
    assert (missing.status_code, missing.json()["code"]) == (404, "sandbox-not-found")


async def test_create__capabilities_select_the_template(call):
    refused = await call("create", capabilities=["gpu"])
    assert refused.status_code == 422
    assert "No template has the capability gpu." in refused.text
